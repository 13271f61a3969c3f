"""Fit the feedback of a frozen model: three confidence scalars or one fixed weight, without a backward pass.

With the goal "bound" the draft pass of all rows is computed once, and each point of the derivative-free search then
costs one pass. With the goal "generation" samples are drawn at a few weights and compared with plain sampling at equal
entropy. The two goals prefer different weights. `fit` finds the feedback; `tune` also measures what it gains.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
_LARGEST = 0.9  # of a constant weight
EVALUATIONS = {True: 20, False: 40}  # at most, of the search for one constant weight, or for three scalars
# The range of the three scalars. Its edges are where a training that starts from the fit can still move them: the
# gradients of the logit and of softplus vanish beyond.
_SCALE, _SMALLEST_CENTRE, _STEEPNESS = (0.01, 0.95), 0.05, 10.0
_STEP = 0.9  # of the first simplex


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
    if goal == "bound" and quality is not None:
        raise ArcmaskError("quality has no effect, since the goal bound draws no samples; leave it out")
    options: dict[str, Any] = {"top_k": top_k, "karcher_steps": karcher_steps, "advance": advance}
    _check_rows(rows, 4)
    if goal == "bound" and held_out is None:
        rows, held_out = rows.split([len(rows) - max(2, len(rows) // 4), max(2, len(rows) // 4)])
    drawing: dict[str, Any] = {"quality": quality, "samples": samples, "steps": steps}
    fitted = fit(denoiser, rows, operator, fixed, goal, seed, batch_size=batch_size, **drawing, **options)
    if goal == "generation":
        generator = _generator(denoiser, rows, seed + 1, **drawing)
        return _measure_generation(generator, fitted, advance)
    assert held_out is not None
    drafts = Drafts(denoiser, held_out, top_k=top_k, seed=seed + 1, batch_size=batch_size)
    change = summarize((drafts.two_pass(fitted)[0] - drafts.plain).tolist())
    return Tuned(
        feedback=fitted,
        difference=change.mean,
        half_width=change.half_width or 0.0,
        plain=float(drafts.plain.mean()),
        rows=len(held_out),
    )


def fit(
    denoiser: Denoiser,
    rows: Rows,
    operator: str | Function | Operator = "spherical",
    fixed: bool = False,
    goal: str = "bound",
    seed: int = 0,
    *,
    top_k: int = 3,
    karcher_steps: int = 3,
    batch_size: int = 16,
    quality: Quality | None = None,
    samples: int = 96,
    steps: int = 64,
    advance: Callable[[int], object] = lambda _: None,
) -> SoftMask:
    """Return the feedback that `tune` fits on all of the rows (N, L), without measuring what it gains."""
    check_choice("goal", goal, ("bound", "generation"))
    name = find_operator(operator).name
    if name == "none":
        raise ArcmaskError("the operator none feeds nothing back, so there is nothing to fit; give another one")
    _check_rows(rows, 2)
    if goal == "generation":
        generator = _generator(denoiser, rows, seed, quality, samples, steps)
        return _best_for_generation(generator, name, top_k, karcher_steps, advance)
    drafts = Drafts(denoiser, rows, top_k=top_k, seed=seed, batch_size=batch_size)
    search = _Search(drafts, name, top_k, karcher_steps, advance)
    return search.best_fixed() if fixed else search.best_learned()


def _check_rows(rows: Rows, least: int) -> None:
    if rows.ndim != 2 or len(rows) < least:
        raise ArcmaskError(
            f"rows must have the shape (N, L) with {least} rows or more, but they have {tuple(rows.shape)}"
        )


def _generator(
    denoiser: Denoiser, rows: Rows, seed: int, quality: Quality | None, samples: int, steps: int
) -> Generator:
    quality = quality or real_words(words_of_rows(rows, getattr(denoiser, "tokenizer", None)))
    sizes = {"samples": samples, "length": rows.shape[1], "steps": steps, "seed": seed}
    return Generator(denoiser=denoiser, quality=quality, **sizes)


def _best_for_generation(
    generator: Generator, operator: str, top_k: int, karcher_steps: int, advance: Callable[[int], object]
) -> SoftMask:
    """Return the feedback whose constant weight has the best quality at equal entropy."""
    settings: dict[str, Any] = {"top_k": top_k, "karcher_steps": karcher_steps, "advance": advance}
    curve = generation_curve(generator, [operator], GENERATION_WEIGHTS, **settings)
    lowest = min(point.entropy for point in curve.plain)  # below it, plain sampling would be extrapolated
    points = [point for point in curve.operators[operator] if point.entropy >= lowest] or curve.operators[operator]
    best = max(points, key=lambda point: generator.quality.sign * (point.gain or 0.0))
    return SoftMask(operator, top_k, karcher_steps, Confidence(fixed=best.setting))


def _measure_generation(generator: Generator, feedback: SoftMask, advance: Callable[[int], object]) -> Tuned:
    """Compare the samples of fitted feedback with plain sampling at equal entropy."""
    settings: dict[str, Any] = {"top_k": feedback.top_k, "karcher_steps": feedback.karcher_steps, "advance": advance}
    weight = float(feedback.confidence.fixed or 0.0)
    curve = generation_curve(generator, [feedback.operator], [weight], **settings)
    (point,) = curve.operators[feedback.operator]
    return Tuned(
        feedback=feedback,
        difference=point.gain or 0.0,
        half_width=point.gain_half_width or 0.0,
        plain=curve.plain[0].quality,
        rows=generator.samples,
        curve=curve,
    )


class _Search:
    """A search for the feedback with the lowest bound on fixed rows, times and masks."""

    def __init__(
        self, drafts: Drafts, operator: str, top_k: int, karcher_steps: int, advance: Callable[[int], object]
    ) -> None:
        self.drafts, self.settings, self.advance = drafts, (operator, top_k, karcher_steps), advance

    def soft_mask(self, confidence: Confidence) -> SoftMask:
        """Build the feedback with a confidence."""
        return SoftMask(*self.settings, confidence)

    def bound(self, confidence: Confidence) -> float:
        """Return the mean two-pass bound in nats per token."""
        self.advance(1)
        return float(self.drafts.two_pass(self.soft_mask(confidence))[0].mean())

    def best_fixed(self) -> SoftMask:
        """Return the feedback with the best constant weight: a coarse grid, then a search around its best point."""
        from scipy.optimize import minimize_scalar

        bounds = {weight: self.bound(Confidence(fixed=weight)) for weight in _WEIGHTS}
        index = _WEIGHTS.index(min(bounds, key=bounds.__getitem__))
        low = 0.0 if index == 0 else _WEIGHTS[index - 1]
        high = _LARGEST if index + 1 == len(_WEIGHTS) else _WEIGHTS[index + 1]
        result = minimize_scalar(
            lambda weight: self.bound(Confidence(fixed=float(weight))),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 0.005, "maxiter": EVALUATIONS[True] - len(_WEIGHTS)},
        )
        return self.soft_mask(Confidence(fixed=float(result.x)))

    def best_learned(self) -> SoftMask:
        """Return the feedback with the best scale, centre and steepness, by a Nelder-Mead search.

        The search is over the logit of the scale and the logarithms of the other two. It starts from a scale of 0.5 and
        a centre at half the median entropy. At a centre of twice the largest entropy the weight is constant.
        """
        import numpy as np
        from scipy.optimize import minimize

        entropy = self.drafts.entropy
        lower, median, upper = np.quantile(entropy.numpy(), [0.25, 0.5, 0.75]).tolist()
        smallest, largest = _SMALLEST_CENTRE, max(2 * _SMALLEST_CENTRE, 2 * float(entropy.max()))
        slope = 2 / max(upper - lower, 0.1)
        low, high = (
            np.array([math.log(scale / (1 - scale)), math.log(centre), math.log(steepness)])
            for scale, centre, steepness in zip(
                _SCALE, (smallest, largest), (slope / _STEEPNESS, slope * _STEEPNESS), strict=True
            )
        )
        start = np.clip([0.0, math.log(max(median / 2, smallest)), math.log(slope)], low, high)
        result = minimize(
            lambda point: self.bound(_confidence(point)),
            start,
            method="Nelder-Mead",
            bounds=list(zip(low, high, strict=True)),
            options={
                # Large steps, up where the range allows it: a simplex that is pressed to an edge cannot leave it.
                "initial_simplex": [start, *(start + _STEP * np.diag(np.where(start + _STEP <= high, 1, -1)))],
                "maxfev": EVALUATIONS[False],
                "xatol": 0.02,
                "fatol": 1e-5,
            },
        )
        return self.soft_mask(_confidence(result.x))


def _confidence(point: Sequence[float]) -> Confidence:
    """Return the confidence at a point of the search: the logit of the scale, and two logarithms."""
    logit, centre, steepness = map(float, point)
    return Confidence(1 / (1 + math.exp(-logit)), -math.exp(centre), math.exp(steepness))
