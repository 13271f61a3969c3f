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
from arcmask.feedback import OPERATORS, Confidence

_WEIGHTS = 51


@dataclass(frozen=True)
class LerpNorms:
    """Norms along LERP's path over the mask's norm. The shell is where the middle 90 % of the tokens' norms lie."""

    positions: int
    weights: list[float]
    ratio: list[Spread]
    outside: list[float]  # the share of positions whose blend is outside the shell
    shell_low: float
    shell_high: float
    deepest: Spread  # the smallest ratio along each position's path
    mean_norm: Spread  # the Euclidean mean's norm, where the path ends
    own_weight: float  # the mean weight of this model's confidence
    own_ratio: Spread  # the ratio at each position's own weight

    @property
    def reading(self) -> str:
        half = min(range(len(self.weights)), key=lambda place: abs(self.weights[place] - 0.5))
        return (
            f"LERP's path sinks to {self.deepest.median:.2f} of the mask's norm (median), where tokens lie between "
            f"{self.shell_low:.2f} and {self.shell_high:.2f}: half-way {100 * self.outside[half]:.0f} % of blends are "
            f"off that shell, and at this model's weights ({self.own_weight:.2f} on average) the norm is "
            f"{self.own_ratio.mean:.3f}; SLERP stays at 1 throughout."
        )


@torch.no_grad()
def lerp_norms(
    table: Tensor, mask_id: int, predictions: Sequence[Predictions], confidence: Confidence | None = None
) -> LerpNorms:
    """(V, D), id, predictions, and the confidence whose weights are the model's own -> how LERP leaves the shell.

    |(1 - w) m + w mu|^2 is a parabola in w, so that three inner products a position give the whole path.
    """
    confidence = Confidence() if confidence is None else confidence
    candidates = join(at.candidates for at in predictions)
    mask = table[mask_id].double()
    square = mask.square().sum()
    along, mean_square = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        mean = sphere.combine(probs, points)
        along.append(mean @ mask)
        mean_square.append(mean.square().sum(-1))
    path = torch.cat(along) / square, torch.cat(mean_square) / square
    weights = torch.linspace(0, 1, _WEIGHTS, dtype=torch.float64)
    ratios = [_ratio(*path, weight) for weight in weights]
    shell = spread(torch.linalg.vector_norm(_without(table, mask_id).double(), dim=-1) / square.sqrt())
    own = confidence(candidates.entropy.to(confidence_device(confidence))).to(mask)
    return LerpNorms(
        positions=len(candidates),
        weights=weights.tolist(),
        ratio=[spread(ratio) for ratio in ratios],
        outside=[float(((r < shell.low) | (r > shell.high)).double().mean()) for r in ratios],
        shell_low=shell.low,
        shell_high=shell.high,
        deepest=spread(_ratio(*path, _lowest(*path))),
        mean_norm=spread(path[1].sqrt()),
        own_weight=float(own.mean()),
        own_ratio=spread(_ratio(*path, own)),
    )


def confidence_device(confidence: Confidence) -> torch.device:
    """Where its scalars are."""
    return next((parameter.device for parameter in confidence.parameters()), torch.device("cpu"))


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
