"""Step rules: which masked positions a step reveals, and which revealed positions it masks again.

A rule knows masks, times and uniform numbers, not the denoiser. `RULES` maps names to rules.

Shapes: B sequences, L positions, S steps. Times fall from 1 to about 0. `free` marks the positions that are not part of
the prompt.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, check_choice
from arcmask.sampling.draws import Draws

END_TIME = 1e-5


@dataclass(frozen=True)
class Timetable:
    """The plan of a run, fixed before its first step."""

    times: Tensor  # (B, S + 1), the time of each step and of the end
    counts: Tensor | None = None  # (B, S), how many positions each step reveals, for rules that fix the number


@dataclass(frozen=True)
class StepState:
    """The input of a rule in one step. The uniform numbers are drawn anew for each step."""

    time: Tensor  # (B,)
    next_time: Tensor  # (B,)
    count: Tensor | None  # (B,), how many positions to reveal
    masked: Tensor  # (B, L)
    free: Tensor  # (B, L)
    reveal_uniform: Tensor  # (B, L)
    remask_uniform: Tensor  # (B, L)
    certainty: Tensor | None = None  # (B, L), the probability of each drawn token


@dataclass(frozen=True)
class Change:
    """The positions (B, L) to reveal, and those to mask again."""

    reveal: Tensor
    remask: Tensor | None = None


class Rule(ABC):
    """A step rule. A rule that needs certainty chooses after a token has been drawn for every masked position."""

    needs_certainty: ClassVar[bool] = False

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """Return the times of a run; by default they are evenly spaced."""
        return Timetable(_even_grid(steps, len(free)))

    @abstractmethod
    def choose(self, state: StepState) -> Change:
        """Return the positions that change in a step."""


class Ancestral(Rule):
    """MDLM's reverse process under alpha = 1 - t: a step reveals each masked position with probability (t - s) / t."""

    def choose(self, state: StepState) -> Change:
        """Reveal each masked position independently."""
        rate = (state.time - state.next_time) / state.time
        return Change(reveal=state.masked & (state.reveal_uniform < rate.unsqueeze(1)))


class FirstHitting(Rule):
    """The same process, simulated by its events: positions are revealed in random order, at random times.

    With one step per free position, positions are revealed one at a time, and samples have the distribution of
    infinitely many ancestral steps. With fewer steps they are revealed in even groups.
    """

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:
        """Draw the event times: with n positions masked at time t, the next event is at t u^(1/n).

        The time of a group is that of the event before it.
        """
        total = free.sum(1, keepdim=True)
        left = (total - torch.arange(free.shape[1])).clamp_min(1)
        events = torch.cumprod(draws.uniform(free.shape[1]) ** (1 / left), dim=1)
        events = torch.cat([torch.ones_like(events[:, :1]), events], dim=1)
        done = _even_groups(total, steps)
        return Timetable(events.gather(1, done), done.diff(dim=1))

    def choose(self, state: StepState) -> Change:
        """Reveal `count` masked positions, every set with equal probability."""
        return Change(reveal=_smallest(state.reveal_uniform, state))


class MostConfident(Rule):
    """The order of MaskGIT and LLaDA: even groups, the positions with the most probable drawn tokens first."""

    needs_certainty: ClassVar[bool] = True

    def timetable(self, steps: int, free: Tensor, draws: Draws) -> Timetable:  # noqa: ARG002
        """Return evenly spaced times, and the same number of positions for every step."""
        return Timetable(_even_grid(steps, len(free)), _even_groups(free.sum(1, keepdim=True), steps).diff(dim=1))

    def choose(self, state: StepState) -> Change:
        """Reveal `count` masked positions, the most certain first."""
        assert state.certainty is not None
        return Change(reveal=_smallest(-state.certainty, state))


@dataclass(frozen=True)
class RemaskCap(Rule):
    """ReMDM-cap: a step masks each revealed position again with probability `cap`, or less where the process needs it.

    The schedule is alpha = 1 - t.
    """

    cap: float = 0.02

    def __post_init__(self) -> None:
        _check_share("cap", self.cap)

    def choose(self, state: StepState) -> Change:
        """Reveal and mask again, each position independently."""
        rate = torch.full_like(state.time, self.cap)
        return _reveal_and_remask(state, 1 - state.time, 1 - state.next_time, rate)


@dataclass(frozen=True)
class RemaskLoop(Rule):
    """ReMDM-loop: reveal a share `held`, then reveal and mask again at that share, then reveal the rest.

    The three phases lie above time `start`, between `start` and `stop`, and below `stop`.
    """

    rate: float = 0.02
    held: float = 0.9
    start: float = 0.55
    stop: float = 0.05

    def __post_init__(self) -> None:
        _check_share("rate", self.rate)
        _check_share("held", self.held)
        if not 0 < self.stop < self.start < 1:
            raise ArcmaskError(f"the loop runs from {self.start} to {self.stop}, but must have 1 > start > stop > 0")

    def choose(self, state: StepState) -> Change:
        """Reveal and mask again, each position independently; mask again only inside the loop."""
        inside = (state.time <= self.start) & (state.time > self.stop)
        rate = torch.where(inside, self.rate, 0.0).double()
        return _reveal_and_remask(state, self.alpha(state.time), self.alpha(state.next_time), rate)

    def alpha(self, time: Tensor) -> Tensor:
        """Return the share of positions that are revealed at a time."""
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


def find_rule(rule: str | Rule) -> Rule:
    """Return the rule of a name with its default settings, or the rule itself; an unknown name lists the choices."""
    if not isinstance(rule, str):
        return rule
    check_choice("step rule", rule, RULES)
    return RULES[rule]()


def _even_grid(steps: int, batch: int) -> Tensor:
    """Return evenly spaced times (B, S + 1) from 1 to 1e-5."""
    return torch.linspace(1, END_TIME, steps + 1, dtype=torch.float64).expand(batch, -1)


def _even_groups(total: Tensor, steps: int) -> Tensor:
    """Return how many of `total` (B, 1) positions are revealed before each step and at the end, (B, S + 1)."""
    return torch.arange(steps + 1) * total // steps


def _smallest(scores: Tensor, state: StepState) -> Tensor:
    """Return the `count` masked positions with the smallest scores (B, L); of equal scores the first comes first."""
    assert state.count is not None
    rank = torch.where(state.masked, scores, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    return state.masked & (rank < state.count.unsqueeze(1))


def _reveal_and_remask(state: StepState, alpha: Tensor, next_alpha: Tensor, rate: Tensor) -> Change:
    """Take a ReMDM step: mask again at a rate of at most (1 - next_alpha) / alpha, and reveal up to next_alpha."""
    sigma = torch.minimum(rate, (1 - next_alpha) / alpha.clamp_min(torch.finfo(alpha.dtype).tiny))
    reveal = (next_alpha - (1 - sigma) * alpha) / (1 - alpha).clamp_min(torch.finfo(alpha.dtype).tiny)
    return Change(
        reveal=state.masked & (state.reveal_uniform < reveal.unsqueeze(1)),
        remask=state.free & ~state.masked & (state.remask_uniform < sigma.unsqueeze(1)),
    )


def _check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ArcmaskError(f"the {name} of a remasking rule is {value}, but must lie in [0, 1)")
