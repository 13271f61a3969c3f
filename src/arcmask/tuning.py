"""Fit the feedback of a frozen model: three confidence scalars or one fixed weight, without a backward pass.

The draft pass of all rows is computed once. Each point of the derivative-free search then costs one pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.diagnostics.gain import Drafts
from arcmask.errors import ArcmaskError, check_choice
from arcmask.evaluation.statistics import summarize
from arcmask.feedback import Confidence, SoftMask, find_operator
from arcmask.model import Denoiser

_WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.45)
_EVALUATIONS = 60  # of the search over three scalars
_LARGEST = 0.9  # of a weight


@dataclass(frozen=True)
class Tuned:
    """Fitted feedback, and what it gains on held-out rows: two-pass minus plain bound in nats per token.

    A difference below 0 means that feedback helps. `half_width` is half a 95 % confidence interval (Student's t over
    rows, paired).
    """

    feedback: SoftMask
    difference: float
    half_width: float
    plain: float  # the plain bound on the held-out rows
    rows: int  # held-out rows
    evaluations: int  # points of the search


def tune(
    denoiser: Denoiser,
    rows: Tensor,
    operator: str = "spherical",
    fixed: bool = False,
    goal: str = "bound",
    seed: int = 0,
    *,
    held_out: Tensor | None = None,
    top_k: int = 3,
    karcher_steps: int = 3,
    batch_size: int = 16,
) -> Tuned:
    """Fit the feedback of a frozen denoiser on rows (N, L), and measure its gain on held-out rows.

    With `fixed`, the best constant weight is fitted instead of the three scalars. Without `held_out`, the last quarter
    of the rows is held out.

    >>> import arcmask
    >>> import torch
    >>> rows = torch.randint(0, 27, (8, 32), generator=torch.Generator().manual_seed(0))
    >>> arcmask.tune(arcmask.load("sotu-tiny"), rows, fixed=True).feedback.operator
    'spherical'
    """
    check_choice("goal", goal, ("bound",))
    find_operator(operator)
    if rows.ndim != 2 or len(rows) < 4:
        raise ArcmaskError(f"rows must have the shape (N, L) with four rows or more, but they have {tuple(rows.shape)}")
    if held_out is None:
        rows, held_out = rows.split([len(rows) - max(2, len(rows) // 4), max(2, len(rows) // 4)])
    search = _Search(
        Drafts(denoiser, rows, top_k=top_k, seed=seed, batch_size=batch_size), operator, top_k, karcher_steps
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


class _Search:
    """A search for the feedback with the lowest bound on fixed rows, times and masks."""

    def __init__(self, drafts: Drafts, operator: str, top_k: int, karcher_steps: int) -> None:
        self.drafts, self.settings, self.evaluations = drafts, (operator, top_k, karcher_steps), 0

    def soft_mask(self, confidence: Confidence) -> SoftMask:
        """Build the feedback with a confidence."""
        return SoftMask(*self.settings, confidence)

    def bound(self, confidence: Confidence) -> float:
        """Return the mean two-pass bound in nats per token."""
        self.evaluations += 1
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
