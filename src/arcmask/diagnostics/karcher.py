"""Measure how far a few Karcher steps end from the converged Fréchet mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, points_of, spread

STEPS = (0, 1, 2, 3, 5)
_CONVERGED = 50
_POSITIONS = 4096


@dataclass(frozen=True)
class KarcherDistances:
    """Degrees from the converged mean after each number of steps, and from it to the Euclidean mean's direction."""

    positions: int
    steps: list[int]
    distance: list[Spread]
    largest: list[float]
    euclidean: Spread
    converged_steps: int
    residual: float  # the largest distance that the last step of the converged mean moved a position

    @property
    def reading(self) -> str:
        by_steps = ", ".join(f"{n}: {at.mean:.2g}" for n, at in zip(self.steps, self.distance, strict=True))
        return (
            f"Mean distance from the converged Fréchet mean, in degrees, by number of Karcher steps: {by_steps}. The "
            f"Euclidean mean is {self.euclidean.mean:.2g} degrees away. More steps are not needed once the distance is "
            "small compared with the angle to the mask."
        )


@torch.no_grad()
def karcher_distances(
    table: Tensor, predictions: Sequence[Predictions], steps: Sequence[int] = STEPS
) -> KarcherDistances:
    """Return the distances for a table (V, D), in float64, over at most 4,096 positions spread evenly over all."""
    candidates = Candidates.join(at.candidates for at in predictions)
    if len(candidates) > _POSITIONS:
        rows = torch.linspace(0, len(candidates) - 1, _POSITIONS).long()
        candidates = candidates[rows.to(candidates.ids.device)]
    blocks: list[list[Tensor]] = []
    for points, probs in points_of(table, candidates, torch.float64):
        means = [sphere.frechet_mean(points, probs, count) for count in (*steps, _CONVERGED - 1, _CONVERGED)]
        others = [*means[:-1], sphere.combine(probs, points)]
        blocks.append([sphere.angle(means[-1], other) for other in others])
    *distance, moved, euclidean = (torch.cat(parts).rad2deg() for parts in zip(*blocks, strict=True))
    return KarcherDistances(
        positions=len(candidates),
        steps=list(steps),
        distance=[spread(values) for values in distance],
        largest=[float(values.max()) for values in distance],
        euclidean=spread(euclidean),
        converged_steps=_CONVERGED,
        residual=float(moved.max()),
    )
