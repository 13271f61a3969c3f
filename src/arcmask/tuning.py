"""Fit the feedback of a frozen model: three confidence scalars or one fixed weight, without a backward pass.

With the goal "bound" the draft pass of all rows is computed once, and each point of the derivative-free search then
costs one pass. With the goal "generation" samples are drawn at a few weights and compared with plain sampling at equal
entropy. The two goals prefer different weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from arcmask.diagnostics.gain import Drafts
from arcmask.diagnostics.generation import (
    TEMPERATURES,
    GenerationCurve,
    Generator,
    Quality,
    generation_curve,
    real_words,
)
from arcmask.errors import ArcmaskError, check_choice
from arcmask.evaluation.statistics import summarize
from arcmask.evaluation.texts import words_of_rows
from arcmask.feedback import Confidence, Operator, SoftMask, find_operator
from arcmask.feedback.registry import Function
from arcmask.model import Denoiser
from arcmask.rows import Rows

GENERATION_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5)
# Sets of samples: those of the search, and those that measure the chosen weight.
GENERATION_CELLS = len(GENERATION_WEIGHTS) + 1 + 2 * len(TEMPERATURES)
_WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.45)
_EVALUATIONS = 60  # of the search over three scalars
_LARGEST = 0.9  # of a weight


@dataclass(frozen=True)
class Tuned:
    """Fitted feedback, and what it gains on text or samples that the fit has not seen.

    With the goal "bound", `difference` is the two-pass minus the plain bound in nats per token; below 0, feedback
    helps. With the goal "generation" it is the quality of samples minus that of plain sampling at equal entropy.
    `half_width` is half a 95 % confidence interval (bound: Student's t over rows, paired; generation: bootstrap over
    samples, paired).
    """

    feedback: SoftMask
    difference: float
    half_width: float
    plain: float  # the bound, or the quality, without feedback
    rows: int  # held-out rows, or samples
    evaluations: int  # points of the search
    curve: GenerationCurve | None = None  # of the goal "generation": the chosen weight on fresh seeds

    @property
    def reading(self) -> str:
        name, change = self.feedback.operator, f"{self.difference:+.4f} ± {self.half_width:.4f}"
        if self.curve is None:
            return (
                f"{name} feedback changes the bound of {self.plain:.4f} nats per token on {self.rows} held-out rows by "
                f"{change}; below 0, feedback helps. ± is a 95 % confidence interval (Student's t over rows, paired)."
            )
        (point,) = self.curve.operators[name]
        return (
            f"{name} feedback changes the {self.curve.quality} of {self.rows} samples from fresh seeds from "
            f"{self.plain:.4g} to {point.quality:.4g}. Compared with plain sampling at the same entropy the difference "
            f"is {self.difference:+.3g} ± {self.half_width:.2g} {self.curve.unit} ({self.curve.better} is better). "
            "± is a 95 % confidence interval (bootstrap over samples, paired)."
        )


def tune(
    denoiser: Denoiser,
    rows: Rows,
    operator: str | Function | Operator = "spherical",
    fixed: bool = False,
    goal: str = "bound",
    seed: int = 0,
    *,
    held_out: Rows | None = None,
    top_k: int = 3,
    karcher_steps: int = 3,
    batch_size: int = 16,
    quality: Quality | None = None,
    samples: int = 96,
    steps: int = 64,
    advance: Callable[[int], object] = lambda _: None,
) -> Tuned:
    """Fit the feedback of a frozen denoiser on rows (N, L), and measure its gain on held-out rows.

    `operator` is a name or a function. With `fixed`, the best constant weight is fitted instead of the three scalars.
    Without `held_out`, the last quarter of the rows is held out. The goal "generation" draws `samples` samples of L
    positions in `steps` steps at each weight, chooses the constant weight with the best `quality` (by default the share
    of words that occur in the rows) compared with plain sampling at equal entropy, and measures it on fresh seeds.
    `advance` is called with 1 after each bound or set of samples.

    >>> import arcmask
    >>> import torch
    >>> rows = torch.randint(0, 27, (8, 32), generator=torch.Generator().manual_seed(0))
    >>> arcmask.tune(arcmask.load("sotu-tiny"), rows, fixed=True).feedback.operator
    'spherical'
    """
    check_choice("goal", goal, ("bound", "generation"))
    name = find_operator(operator).name
    if name == "none":
        raise ArcmaskError("the operator none feeds nothing back, so there is nothing to fit; give another one")
    if goal == "bound" and quality is not None:
        raise ArcmaskError("quality has no effect, since the goal bound draws no samples; leave it out")
    if rows.ndim != 2 or len(rows) < 4:
        raise ArcmaskError(f"rows must have the shape (N, L) with four rows or more, but they have {tuple(rows.shape)}")
    if goal == "generation":
        quality = quality or real_words(words_of_rows(rows, getattr(denoiser, "tokenizer", None)))
        generator = Generator(
            denoiser=denoiser, quality=quality, samples=samples, length=rows.shape[1], steps=steps, seed=seed
        )
        return _tune_generation(generator, name, top_k, karcher_steps, advance)
    if held_out is None:
        rows, held_out = rows.split([len(rows) - max(2, len(rows) // 4), max(2, len(rows) // 4)])
    search = _Search(
        Drafts(denoiser, rows, top_k=top_k, seed=seed, batch_size=batch_size), name, top_k, karcher_steps, advance
    )
    feedback = search.best_fixed() if fixed else search.best_learned()
    drafts = Drafts(denoiser, held_out, top_k=top_k, seed=seed + 1, batch_size=batch_size)
    change = summarize((drafts.two_pass(feedback)[0] - drafts.plain).tolist())
    return Tuned(
        feedback=feedback,
        difference=change.mean,
        half_width=change.half_width or 0.0,
        plain=float(drafts.plain.mean()),
        rows=len(held_out),
        evaluations=search.evaluations,
    )


def _tune_generation(
    generator: Generator, operator: str, top_k: int, karcher_steps: int, advance: Callable[[int], object]
) -> Tuned:
    """Choose the constant weight with the best quality at equal entropy, and measure it on fresh seeds."""
    settings: dict[str, Any] = {"top_k": top_k, "karcher_steps": karcher_steps, "advance": advance}
    curve = generation_curve(generator, [operator], GENERATION_WEIGHTS, **settings)
    lowest = min(point.entropy for point in curve.plain)  # below it, plain sampling would be extrapolated
    points = [point for point in curve.operators[operator] if point.entropy >= lowest] or curve.operators[operator]
    best = max(points, key=lambda point: generator.quality.sign * (point.gain or 0.0))
    fresh = generation_curve(replace(generator, seed=generator.seed + 1), [operator], [best.setting], **settings)
    (point,) = fresh.operators[operator]
    return Tuned(
        feedback=SoftMask(operator, top_k, karcher_steps, Confidence(fixed=best.setting)),
        difference=point.gain or 0.0,
        half_width=point.gain_half_width or 0.0,
        plain=fresh.plain[0].quality,
        rows=generator.samples,
        evaluations=len(GENERATION_WEIGHTS),
        curve=fresh,
    )


class _Search:
    """A search for the feedback with the lowest bound on fixed rows, times and masks."""

    def __init__(
        self, drafts: Drafts, operator: str, top_k: int, karcher_steps: int, advance: Callable[[int], object]
    ) -> None:
        self.drafts, self.settings, self.evaluations = drafts, (operator, top_k, karcher_steps), 0
        self.advance = advance

    def soft_mask(self, confidence: Confidence) -> SoftMask:
        """Build the feedback with a confidence."""
        return SoftMask(*self.settings, confidence)

    def bound(self, confidence: Confidence) -> float:
        """Return the mean two-pass bound in nats per token."""
        self.evaluations += 1
        self.advance(1)
        return float(self.drafts.two_pass(self.soft_mask(confidence))[0].mean())

    def best_weight(self) -> float:
        """Return the best constant weight: a coarse grid, then a bounded search around its best point."""
        from scipy.optimize import minimize_scalar

        bounds = {weight: self.bound(Confidence(fixed=weight)) for weight in _WEIGHTS}
        index = _WEIGHTS.index(min(bounds, key=bounds.__getitem__))
        low = 0.0 if index == 0 else _WEIGHTS[index - 1]
        high = _LARGEST if index + 1 == len(_WEIGHTS) else _WEIGHTS[index + 1]
        result = minimize_scalar(
            lambda weight: self.bound(Confidence(fixed=float(weight))),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 0.005, "maxiter": 20},
        )
        return float(result.x)

    def best_fixed(self) -> SoftMask:
        """Return the feedback with the best constant weight."""
        return self.soft_mask(Confidence(fixed=self.best_weight()))

    def best_learned(self) -> SoftMask:
        """Return the feedback with the best scale, centre and steepness (Nelder-Mead from the best constant weight)."""
        from scipy.optimize import minimize

        weight, entropy = self.best_weight(), self.drafts.entropy
        low, middle, high = torch.quantile(entropy, entropy.new_tensor([0.25, 0.5, 0.75])).tolist()
        start = _raw(
            Confidence(min(_LARGEST, 2 * weight), -max(0.05, middle), min(20.0, max(1.0, 2 / max(high - low, 0.1))))
        )
        # Steps of the first simplex: half a unit of each raw scalar changes the weight visibly, not wildly.
        simplex = [start, *([value + (0.7 if i == j else 0.0) for j, value in enumerate(start)] for i in range(3))]
        result = minimize(
            lambda raw: self.bound(_confidence(raw)),
            start,
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "maxfev": _EVALUATIONS, "xatol": 0.02, "fatol": 1e-5},
        )
        return self.soft_mask(_confidence(result.x))


def _raw(confidence: Confidence) -> list[float]:
    return [parameter.item() for parameter in confidence.parameters()]


def _confidence(raw: list[float]) -> Confidence:
    names = ("raw_scale", "raw_centre", "raw_steepness")
    return Confidence.from_settings(dict(zip(names, map(float, raw), strict=True)))
