"""The norm that LERP gives along its path, and the paths of the operators as curves on a sphere.

Knows a table, predictions and the operators. Shapes: V vocabulary, D width, M masked positions, W weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.diagnostics.predictions import Predictions, Spread, join, points_of, spread
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence

_WEIGHTS = 51
_BARS = 40


@dataclass(frozen=True)
class LerpNorms:
    """Norms along LERP's path, over the mask's norm: 1 is the sphere through the mask, on which SLERP stays."""

    positions: int
    weights: list[float]
    ratio: list[Spread]
    deepest: Spread  # the smallest ratio along each position's path
    deepest_edges: list[float]
    deepest_histogram: list[int]
    mean_norm: Spread  # the Euclidean mean's norm, where the path ends
    own_weight: float  # the mean weight that the confidence gives
    own_ratio: Spread  # the ratio at each position's own weight
    tokens: Spread  # the tokens' own norms, over the mask's
    thickness: float  # their standard deviation

    @property
    def reading(self) -> str:
        dip, thick = 1 - self.deepest.median, ""
        if self.thickness > 0:
            thick = f", {dip / self.thickness:.1f} times the standard deviation of the tokens' norms"
        return (
            f"LERP's path sinks {100 * dip:.0f} % below the sphere through the mask (median{thick}); at the weights "
            f"that the confidence gives, {self.own_weight:.2f} on average, its norm is {self.own_ratio.mean:.2f} of "
            f"the mask's; SLERP stays on that sphere, and tokens lie between {self.tokens.low:.2f} and "
            f"{self.tokens.high:.2f} of its radius."
        )


@torch.no_grad()
def lerp_norms(
    table: Tensor, mask_id: int, predictions: Sequence[Predictions], confidence: Confidence | None = None
) -> LerpNorms:
    """(V, D), id, predictions, and the model's confidence (by default the paper's) -> how LERP leaves the sphere.

    |(1 - w) m + w mu|^2 is a parabola in w, so that two inner products a position give the whole path.
    """
    confidence = Confidence() if confidence is None else confidence
    candidates = join(at.candidates for at in predictions)
    mask = table[mask_id].double()
    square = mask.square().sum()
    if not bool(square > 0):
        raise ArcmaskError("the mask's embedding has no length, so that there is no sphere through it")
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
    tokens = torch.linalg.vector_norm(_without(table, mask_id).double(), dim=-1) / square.sqrt()
    return LerpNorms(
        positions=len(candidates),
        weights=weights.tolist(),
        ratio=[spread(_ratio(*path, weight)) for weight in weights],
        deepest=spread(deepest),
        deepest_edges=edges.tolist(),
        deepest_histogram=torch.histogram(deepest.clamp(0, 1), edges).hist.long().tolist(),
        mean_norm=spread(path[1].sqrt()),
        own_weight=float(own.mean()),
        own_ratio=spread(_ratio(*path, own)),
        tokens=spread(tokens),
        thickness=float(tokens.std(correction=0)),
    )


def _ratio(along: Tensor, mean_square: Tensor, weight: Tensor) -> Tensor:
    """<m, mu> and |mu|^2, both over |m|^2 -> norms over |m| at a weight, or at one weight each."""
    squared = (1 - weight) ** 2 + 2 * weight * (1 - weight) * along + weight**2 * mean_square
    return squared.clamp_min(0).sqrt()


def _lowest(along: Tensor, mean_square: Tensor) -> Tensor:
    """The weight in [0, 1] at which each path is nearest to the centre."""
    opening = 1 - 2 * along + mean_square
    return torch.where(opening > 0, (1 - along) / torch.where(opening > 0, opening, 1.0), 0.0).clamp(0, 1)


def _without(table: Tensor, mask_id: int) -> Tensor:
    return torch.cat([table[:mask_id], table[mask_id + 1 :]])


@dataclass(frozen=True)
class SpherePaths:
    """Paths from the mask, on the unit sphere, to one mean at that angle and of that norm; points (W, 3) each."""

    degrees: float
    mean_norm: float
    weights: list[float]
    paths: dict[str, list[list[float]]]

    @property
    def reading(self) -> str:
        lowest = min(math.hypot(*point) for point in self.paths["linear"])
        return (
            f"With this model's typical angle of {self.degrees:.0f} degrees and a mean of {self.mean_norm:.2f} times "
            f"the mask's norm, the chord (LERP) comes as near to the centre as {lowest:.2f} of the radius, while the "
            "arc (SLERP) stays on the sphere and turns at an even pace; dots are equal steps of the weight."
        )


@torch.no_grad()
def sphere_paths(angle: float, mean_norm: float = 1.0, count: int = 121) -> SpherePaths:
    """An angle in radians and a norm -> the paths that the operators themselves take there, in three dimensions."""
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
            name: OPERATORS[name](mask, candidates, probs, weight).tolist()
            for name in ("linear", "renormalized", "spherical")
        },
    )
