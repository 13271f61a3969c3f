"""Step rules: which masked positions are revealed in a step, and which revealed ones are masked again.

A rule knows masks, times and uniform numbers; it never sees the denoiser. `RULES` maps names to them.

Shapes: B sequences, L positions, S steps. Times fall from 1 to about 0; `free` positions are those that were not given.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, unknown_name
from arcmask.sampling.draws import Draws

END_TIME = 1e-5


@dataclass(frozen=True)
class Timetable:
    """Fixed before the first step: the time of each and of the end (B, S + 1), and how many it reveals (B, S)."""

    times: Tensor
    counts: Tensor | None = None  # for rules that reveal a set number


@dataclass(frozen=True)
class StepState:
    """What a rule may look at. Uniform numbers (B, L) are drawn afresh for each step."""

    time: Tensor  # (B,) of this step
    next_time: Tensor  # (B,)
    count: Tensor | None  # (B,), how many to reveal
    masked: Tensor  # (B, L)
    free: Tensor  # (B, L)
    reveal_uniform: Tensor  # (B, L)
    remask_uniform: Tensor  # (B, L)
    certainty: Tensor | None = None  # (B, L), the share of each drawn token in its prediction


@dataclass(frozen=True)
class Change:
    """The positions (B, L) to reveal, and those to mask again."""

    reveal: Tensor
    remask: Tensor | None = None


class Rule(Protocol):
    """A step rule. One that needs certainty chooses after every masked position has been predicted."""

    needs_certainty: ClassVar[bool]

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:
        """The times of a run."""

    def choose(self, state: StepState) -> Change:
        """What changes in a step."""


@dataclass(frozen=True)
class Ancestral:
    """MDLM's reverse process under alpha = 1 - t: each masked position is revealed with probability (t - s) / t."""

    needs_certainty: ClassVar[bool] = False

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """An even grid."""
        return Timetable(_even_grid(steps, len(free)))

    def choose(self, state: StepState) -> Change:
        """Each position by itself."""
        rate = (state.time - state.next_time) / state.time
        return Change(reveal=state.masked & (state.reveal_uniform < rate.unsqueeze(1)))


@dataclass(frozen=True)
class FirstHitting:
    """The same process, drawn by its events: positions in random order, at the times at which they are revealed.

    With a step for each free position they go one at a time, and the law of the result is that of infinitely many
    ancestral steps; with fewer steps they go in even groups, each predicted together.
    """

    needs_certainty: ClassVar[bool] = False

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:
        """With n masked at time t, the next event is at t u^(1/n). A group's time is that of the event before it."""
        total = free.sum(1, keepdim=True)
        left = (total - torch.arange(free.shape[1])).clamp_min(1)
        events = torch.cumprod(draws.uniform(free.shape[1]) ** (1 / left), dim=1)
        events = torch.cat([torch.ones_like(events[:, :1]), events], dim=1)
        done = _even_groups(total, steps)
        return Timetable(events.gather(1, done), done.diff(dim=1))

    def choose(self, state: StepState) -> Change:
        """So many of the masked ones, every set of them equally likely."""
        return Change(reveal=_smallest(state.reveal_uniform, state))


@dataclass(frozen=True)
class MostConfident:
    """MaskGIT's and LLaDA's order: the positions whose drawn token the model was most certain of, in even groups."""

    needs_certainty: ClassVar[bool] = True

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """An even grid, and the same number of positions in every step."""
        return Timetable(_even_grid(steps, len(free)), _even_groups(free.sum(1, keepdim=True), steps).diff(dim=1))

    def choose(self, state: StepState) -> Change:
        """So many of the masked ones, the most certain first."""
        assert state.certainty is not None
        return Change(reveal=_smallest(-state.certainty, state))


@dataclass(frozen=True)
class RemaskCap:
    """ReMDM-cap: each step masks a revealed position again with probability `cap`, or as far as the process allows."""

    cap: float = 0.02
    needs_certainty: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_share("cap", self.cap)

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """An even grid."""
        return Timetable(_even_grid(steps, len(free)))

    def choose(self, state: StepState) -> Change:
        """Under alpha = 1 - t."""
        rate = torch.full_like(state.time, self.cap)
        return _reveal_and_remask(state, 1 - state.time, 1 - state.next_time, rate)


@dataclass(frozen=True)
class RemaskLoop:
    """ReMDM-loop: reveal up to a share `held`, then reveal and mask again at that share, then reveal the rest.

    The three phases lie above time `start`, between `start` and `stop`, and below `stop`.
    """

    rate: float = 0.02
    held: float = 0.9
    start: float = 0.55
    stop: float = 0.05
    needs_certainty: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_share("rate", self.rate)
        _check_share("held", self.held)
        if not 0 < self.stop < self.start < 1:
            raise ArcmaskError(f"the loop runs from {self.start} to {self.stop}, but must have 1 > start > stop > 0")

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """An even grid."""
        return Timetable(_even_grid(steps, len(free)))

    def choose(self, state: StepState) -> Change:
        """Masking again only inside the loop."""
        inside = (state.time <= self.start) & (state.time > self.stop)
        rate = torch.where(inside, self.rate, 0.0).double()
        return _reveal_and_remask(state, self.alpha(state.time), self.alpha(state.next_time), rate)

    def alpha(self, time: Tensor) -> Tensor:
        """The share that is revealed by a time."""
        before = (1 - time) * self.held / (1 - self.start)
        after = 1 - time * (1 - self.held) / self.stop
        return torch.where(time > self.start, before, torch.where(time > self.stop, self.held, after))


RULES: dict[str, type[Rule]] = {
    "ancestral": Ancestral,
    "first-hitting": FirstHitting,
    "confidence": MostConfident,
    "remask-cap": RemaskCap,
    "remask-loop": RemaskLoop,
}
"""The step rules by name."""


def find_rule(rule: "str | Rule") -> Rule:
    """The rule of that name with its defaults, or the rule itself; an unknown name lists the known ones."""
    if not isinstance(rule, str):
        return rule
    if rule not in RULES:
        raise unknown_name("step rule", rule, RULES)
    return RULES[rule]()


def _even_grid(steps: int, batch: int) -> Tensor:
    """(B, T + 1) times from 1 to 1e-5."""
    return torch.linspace(1, END_TIME, steps + 1, dtype=torch.float64).expand(batch, -1)


def _even_groups(total: Tensor, steps: int) -> Tensor:
    """(B, 1) -> (B, S + 1): how many of them are done before each step."""
    return torch.arange(steps + 1) * total // steps


def _smallest(scores: Tensor, state: StepState) -> Tensor:
    """The `count` masked positions with the smallest scores; equal ones go by position."""
    assert state.count is not None
    order = torch.where(state.masked, scores, torch.inf).argsort(dim=1, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1]).expand_as(order))
    return state.masked & (rank < state.count.unsqueeze(1))


def _reveal_and_remask(state: StepState, alpha: Tensor, next_alpha: Tensor, rate: Tensor) -> Change:
    """ReMDM's step: a rate sigma, at most (1 - next_alpha) / alpha, and the reveal that keeps alpha on its course."""
    sigma = torch.minimum(rate, (1 - next_alpha) / alpha.clamp_min(torch.finfo(alpha.dtype).tiny))
    reveal = (next_alpha - (1 - sigma) * alpha) / (1 - alpha).clamp_min(torch.finfo(alpha.dtype).tiny)
    return Change(
        reveal=state.masked & (state.reveal_uniform < reveal.unsqueeze(1)),
        remask=state.free & ~state.masked & (state.remask_uniform < sigma.unsqueeze(1)),
    )


def _check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ArcmaskError(f"the {name} of a remasking rule is {value}, but must lie in [0, 1)")
