"""Measure the norm along the straight path (LERP) to the prediction, and trace every operator's path on a sphere.

Shapes: V vocabulary, D width, M masked positions, W weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, histogram, points_of, spread
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence

_WEIGHTS = 51
_BARS = 40


@dataclass(frozen=True)
class LerpNorms:
    """Norms along LERP's path divided by the mask's norm. SLERP stays at 1, on the sphere through the mask."""

    positions: int
    weights: list[float]
    ratio: list[Spread]
    deepest: Spread  # the smallest ratio along each position's path
    deepest_edges: list[float]
    deepest_histogram: list[int]
    mean_norm: Spread  # the Euclidean mean's norm, where the path ends
    own_weight: float  # the mean weight that the confidence gives
    own_ratio: Spread  # the ratio at each position's own weight
    tokens: Spread  # the tokens' norms
    thickness: float  # the standard deviation of the tokens' norms

    @property
    def reading(self) -> str:
        dip, deviations = 1 - self.deepest.median, ""
        if self.thickness > 0:
            deviations = f"; {dip / self.thickness:.1f} standard deviations of the tokens' norms"
        return (
            f"LERP's path sinks {100 * dip:.0f} % below the sphere through the mask (median{deviations}). At the "
            f"weights of the confidence, {self.own_weight:.2f} on average, its mean norm is {self.own_ratio.mean:.2f} "
            f"times the mask's. 90 % of the tokens have norms of {self.tokens.low:.2f} to {self.tokens.high:.2f} times "
            "the mask's."
        )


@torch.no_grad()
def lerp_norms(
    table: Tensor, mask_id: int, predictions: Sequence[Predictions], confidence: Confidence | None = None
) -> LerpNorms:
    """Return how far LERP leaves the sphere, for a table (V, D) and the model's confidence (default: the paper's).

    |(1 - w) m + w mu|^2 is a parabola in w, so two inner products per position give the whole path.
    """
    confidence = Confidence() if confidence is None else confidence
    candidates = Candidates.join(at.candidates for at in predictions)
    mask = table[mask_id].double()
    square = mask.square().sum()
    if not bool(square > 0):
        raise ArcmaskError("the mask's embedding is zero, so there is no sphere through it")
    along, mean_square = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        mean = sphere.combine(probs, points)
        along.append(mean @ mask)
        mean_square.append(mean.square().sum(-1))
    path = torch.cat(along) / square, torch.cat(mean_square) / square
    weights = torch.linspace(0, 1, _WEIGHTS, dtype=torch.float64)
    deepest = _ratio(*path, _lowest(*path)).cpu()
    edges = torch.linspace(0, 1, _BARS + 1, dtype=torch.float64)
    own = confidence(candidates.entropy).to(mask)
    without_mask = torch.cat([table[:mask_id], table[mask_id + 1 :]])
    tokens = torch.linalg.vector_norm(without_mask.double(), dim=-1) / square.sqrt()
    return LerpNorms(
        positions=len(candidates),
        weights=weights.tolist(),
        ratio=[spread(_ratio(*path, weight)) for weight in weights],
        deepest=spread(deepest),
        deepest_edges=edges.tolist(),
        deepest_histogram=histogram(deepest.clamp(0, 1), edges),
        mean_norm=spread(path[1].sqrt()),
        own_weight=float(own.mean()),
        own_ratio=spread(_ratio(*path, own)),
        tokens=spread(tokens),
        thickness=float(tokens.std(correction=0)),
    )


def _ratio(along: Tensor, mean_square: Tensor, weight: Tensor) -> Tensor:
    """Return |(1 - w) m + w mu| / |m| (M,) from <m, mu> / |m|^2, |mu|^2 / |m|^2, and one weight or (M,) weights."""
    squared = (1 - weight) ** 2 + 2 * weight * (1 - weight) * along + weight**2 * mean_square
    return squared.clamp_min(0).sqrt()


def _lowest(along: Tensor, mean_square: Tensor) -> Tensor:
    """Return the weight in [0, 1] at which each path is nearest to the centre."""
    opening = 1 - 2 * along + mean_square
    return torch.where(opening > 0, (1 - along) / torch.where(opening > 0, opening, 1.0), 0.0).clamp(0, 1)


@dataclass(frozen=True)
class SpherePaths:
    """Each operator's path (W, 3) from the mask, on the unit sphere, to one mean with that angle and norm."""

    degrees: float
    mean_norm: float
    weights: list[float]
    paths: dict[str, list[list[float]]]

    @property
    def reading(self) -> str:
        lowest = {name: min(math.hypot(*point) for point in path) for name, path in self.paths.items()}
        inside = [f"{OPERATORS[name].label} {norm:.2f}" for name, norm in lowest.items() if norm < 1 - 1e-6]
        return (
            f"The paths are drawn at the model's mean angle of {self.degrees:.0f} degrees, to a mean of "
            f"{self.mean_norm:.2f} times the mask's norm. Smallest distance from the centre, in radii: "
            f"{', '.join([*inside, 'all others 1'] if len(inside) < len(lowest) else inside)}. "
            "Dots mark equal steps of the weight."
        )


@torch.no_grad()
def sphere_paths(angle: float, mean_norm: float = 1.0, count: int = 121) -> SpherePaths:
    """Return the path of every operator in three dimensions, at an angle in radians and `count` weights."""
    weight = torch.linspace(0, 1, count, dtype=torch.float64)
    mask = sphere.unit(torch.tensor([0.75, -0.55, -0.1], dtype=torch.float64))
    up = torch.tensor([0.1, 0.45, 1.0], dtype=torch.float64)
    across = sphere.unit(up - (up @ mask) * mask)
    target = mean_norm * (math.cos(angle) * mask + math.sin(angle) * across)
    candidates, probs = target.expand(count, 1, 3), torch.ones(count, 1, dtype=torch.float64)
    return SpherePaths(
        degrees=math.degrees(angle),
        mean_norm=mean_norm,
        weights=weight.tolist(),
        paths={
            name: operator(mask, candidates, probs, weight).tolist()
            for name, operator in OPERATORS.items()
            if name != "none"
        },
    )
