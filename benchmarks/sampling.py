"""Time a sampling run at the released size against the plain loop of public implementations.

The package's sampler is timed step by step over a whole run. A plain step always costs the same, so only a few are
timed, inside and outside the band, and multiplied. The floor is the time of the denoiser itself: the hidden states of
the sequence and the logits of the rows that a step uses.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arcmask.feedback import OPERATORS, SoftMask
from arcmask.model import MDLM, autocast, has_fast_bfloat16
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.rules import Ancestral
from arcmask.sampling.sampler import Sampler
from arcmask.settings import Precision
from benchmarks.measure import peak_extra_bytes, table, use_threads
from benchmarks.plain import PlainSampler

LENGTH, VOCABULARY, STEPS = 1024, 50258, 64
TIMES = torch.linspace(1, 1e-5, STEPS + 1, dtype=torch.float64).tolist()
IN_BAND = [0.2 <= t <= 0.8 for t in TIMES[:-1]]


@dataclass
class Timed:
    """A denoiser that adds up the time of its own work."""

    model: MDLM
    seconds: float = 0.0
    log: list[float] = field(default_factory=list)

    @property
    def mask_id(self) -> int:
        return self.model.mask_id

    @property
    def max_length(self) -> int | None:
        return self.model.max_length

    @property
    def table(self) -> Tensor:
        return self.model.table

    def hidden(self, embeddings: Tensor) -> Tensor:
        return self._timed(lambda: self.model.hidden(embeddings))

    def logits(self, rows: Tensor) -> Tensor:
        return self._timed(lambda: self.model.logits(rows))

    def _timed(self, work: Callable[[], Tensor]) -> Tensor:
        start = time.perf_counter()
        result = work()
        self.seconds += time.perf_counter() - start
        return result


class Stepwise(Sampler):
    """A sampler that records the seconds of every step."""

    def _step(self, *arguments: Any) -> None:
        start = time.perf_counter()
        super()._step(*arguments)
        STEP_SECONDS.append(time.perf_counter() - start)


STEP_SECONDS: list[float] = []


def run_ours(model: MDLM, feedback: SoftMask | None, top_p: float) -> tuple[float, float, float, float]:
    """Return the seconds of a whole run, of its floor, and of the mean step outside and inside the band."""
    denoiser = Timed(model)
    sampler = Stepwise(denoiser=denoiser, rule=Ancestral(), steps=STEPS, feedback=feedback, filter=Filter(top_p=top_p))
    STEP_SECONDS.clear()
    start = time.perf_counter()
    sampler.run(torch.full((1, LENGTH), model.mask_id), Draws(0, [0]))
    whole = time.perf_counter() - start
    inside = [s for s, in_band in zip(STEP_SECONDS, IN_BAND, strict=True) if in_band]
    outside = [s for s, in_band in zip(STEP_SECONDS, IN_BAND, strict=True) if not in_band]
    return whole, denoiser.seconds, sum(outside) / len(outside), sum(inside) / len(inside)


@torch.no_grad()
def run_plain(model: MDLM, operator: str | None, top_p: float, repeats: int = 2) -> tuple[float, float, float]:
    """Return the seconds of a whole run, and of a step outside and inside the band."""
    plain = PlainSampler(model, operator, top_p)
    tokens = torch.full((1, LENGTH), model.mask_id)
    tokens[:, ::2] = 5
    seconds = {False: float("inf"), True: float("inf")}
    before = None
    for uses_feedback in [False] * repeats + [True] * repeats:
        start = time.perf_counter()
        _, log_probs = plain.step(tokens, 0.5, 0.48, before if uses_feedback else None)
        seconds[uses_feedback] = min(seconds[uses_feedback], time.perf_counter() - start)
        before = log_probs
    inside = sum(IN_BAND)
    # The last, greedy pass costs as much as a plain step.
    return seconds[True] * inside + seconds[False] * (STEPS - inside + 1), seconds[False], seconds[True]


def run() -> None:
    """Print the table."""
    print(f"sampling: small, L = {LENGTH}, B = 1, T = {STEPS}, ancestral; {use_threads(2)}")
    model = MDLM.create("small", VOCABULARY)
    with torch.no_grad():  # the output layer of a new model is zero, so its predictions would be uniform
        draw = torch.Generator().manual_seed(0)
        for name, parameter in model.named_parameters():
            if "adaLN" in name or "output_layer.linear" in name:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=draw))
    model.train(False)
    precisions: list[Precision] = ["float32"]
    if has_fast_bfloat16("cpu"):
        precisions.append("bfloat16")
    else:
        print("bfloat16 is skipped: this processor emulates it, which takes minutes per step")
    rows: list[tuple[str, ...]] = []
    for top_p in (1.0, 0.9):
        plain, outside, inside = run_plain(model, "spherical", top_p)
        seconds = f"{outside:.2f}", f"{inside:.2f}", f"{plain:.0f}"
        rows.append((f"plain spherical, top-p {top_p}", "float32", *seconds, "1.0", "", ""))
        for precision in precisions:
            arms = list(OPERATORS) if top_p == 1 else ["spherical"]
            whole: dict[str, float] = {}
            for arm in arms:
                feedback = None if arm == "none" else SoftMask(arm)
                with autocast(precision, "cpu"):
                    whole[arm], floor, outside, inside = run_ours(model, feedback, top_p)
                ratios = f"{plain / whole[arm]:.1f}", f"{whole[arm] / floor:.2f}"
                to_none = f"{whole[arm] / whole['none']:.2f}" if "none" in whole else ""
                seconds = f"{outside:.2f}", f"{inside:.2f}", f"{whole[arm]:.0f}"
                rows.append((f"{arm}, top-p {top_p}", precision, *seconds, *ratios, to_none))
    header = ("sampler", "precision", "s/step outside", "inside band", "whole run s", "plain / it", "/ floor", "/ none")
    print("\n" + table(rows, header))
    _memory(model)


def _memory(model: MDLM) -> None:
    """Print the peak memory above the weights of one step inside the band."""
    plain = PlainSampler(model, "spherical", 1.0)
    tokens = torch.full((1, LENGTH), model.mask_id)
    with torch.no_grad():
        _, before = plain.step(tokens, 0.5, 0.48, None)
        plain_bytes = peak_extra_bytes(lambda: plain.step(tokens, 0.5, 0.48, before)) + before.nbytes
    sampler = Sampler(denoiser=model, rule=Ancestral(), steps=2, feedback=SoftMask(), filter=Filter(), band=(0.0, 1.0))
    ours = peak_extra_bytes(lambda: sampler.run(tokens, Draws(0, [0])))
    sizes = f"plain {plain_bytes / 1e6:.0f} MB, ours {ours / 1e6:.0f} MB, ratio {ours / plain_bytes:.2f}"
    print(f"\npeak memory above the weights: {sizes}")
