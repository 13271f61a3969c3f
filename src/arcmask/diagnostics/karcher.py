"""How far a few Karcher steps end from the Fréchet mean itself. Knows a table and predictions.

Shapes: V vocabulary, D width, M masked positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, join, points_of, spread

STEPS = (0, 1, 2, 3, 5)
_CONVERGED = 50
_POSITIONS = 4096


@dataclass(frozen=True)
class KarcherDistances:
    """Degrees from the converged mean after so many steps, and of the direction of the Euclidean mean."""

    positions: int
    steps: list[int]
    distance: list[Spread]
    largest: list[float]
    euclidean: Spread
    converged_steps: int
    residual: float  # the largest distance that the last step of the converged mean still moved it

    @property
    def reading(self) -> str:
        falls = ", ".join(f"{n} {at.mean:.2g}" for n, at in zip(self.steps, self.distance, strict=True))
        return (
            f"Degrees from the Fréchet mean after so many Karcher steps, on average: {falls}; steps after the one "
            "where this is small beside the angle to the mask buy nothing, and the Euclidean mean's direction is "
            f"{self.euclidean.mean:.2g} away."
        )


@torch.no_grad()
def karcher_distances(
    table: Tensor, predictions: Sequence[Predictions], steps: Sequence[int] = STEPS
) -> KarcherDistances:
    """(V, D), predictions -> distances, in float64, over at most 4,096 positions spread evenly over all."""
    candidates = _some(join(at.candidates for at in predictions))
    distance: dict[int, list[Tensor]] = {count: [] for count in steps}
    euclidean, moved = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        converged = sphere.frechet_mean(points, probs, _CONVERGED)
        moved.append(sphere.angle(converged, sphere.frechet_mean(points, probs, _CONVERGED - 1)))
        euclidean.append(sphere.angle(converged, sphere.combine(probs, points)))
        for count in steps:
            distance[count].append(sphere.angle(converged, sphere.frechet_mean(points, probs, count)))
    degrees = {count: torch.cat(parts).rad2deg() for count, parts in distance.items()}
    return KarcherDistances(
        positions=len(candidates),
        steps=list(steps),
        distance=[spread(values) for values in degrees.values()],
        largest=[float(values.max()) for values in degrees.values()],
        euclidean=spread(torch.cat(euclidean).rad2deg()),
        converged_steps=_CONVERGED,
        residual=float(torch.cat(moved).rad2deg().max()),
    )


def _some(candidates: Candidates) -> Candidates:
    if len(candidates) <= _POSITIONS:
        return candidates
    places = torch.linspace(0, len(candidates) - 1, _POSITIONS).long()
    places = places.to(candidates.ids.device)
    return Candidates(ids=candidates.ids[places], probs=candidates.probs[places], entropy=candidates.entropy[places])
