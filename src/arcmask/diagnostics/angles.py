"""The angle between the mask and what is predicted: the arc that feedback travels on.

Knows a table and predictions. Shapes: V vocabulary, D width, M masked positions, K candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, points_of, spread


@dataclass(frozen=True)
class Angles:
    """Degrees between the mask and the candidates' mean at each time, and over all masked positions."""

    times: list[float]
    positions: list[int]
    karcher_steps: int
    euclidean: list[Spread]
    frechet: list[Spread]
    euclidean_mean: float
    frechet_mean: float

    @property
    def reading(self) -> str:
        means = [at.mean for at in self.euclidean]
        return (
            f"Feedback travels {self.euclidean_mean:.1f} degrees if it goes all the way to the Euclidean mean and "
            f"{self.frechet_mean:.1f} to the Fréchet mean; over t the former lies between {min(means):.1f} and "
            f"{max(means):.1f} (the paper finds about 73; near 0 the operators would hardly differ, and 90 is a right "
            "angle)."
        )


def angles_over_time(table: Tensor, mask_id: int, predictions: Sequence[Predictions], karcher_steps: int = 3) -> Angles:
    """(V, D), id, predictions at some times -> the angles to both means."""
    found = [angles_of(table, mask_id, at.candidates, karcher_steps) for at in predictions]
    euclidean, frechet = ([angle.rad2deg() for angle in kind] for kind in zip(*found, strict=True))
    return Angles(
        times=[at.time for at in predictions],
        positions=[len(at) for at in predictions],
        karcher_steps=karcher_steps,
        euclidean=[spread(at) for at in euclidean],
        frechet=[spread(at) for at in frechet],
        euclidean_mean=float(torch.cat(euclidean).mean()),
        frechet_mean=float(torch.cat(frechet).mean()),
    )


@torch.no_grad()
def angles_of(table: Tensor, mask_id: int, candidates: Candidates, karcher_steps: int) -> tuple[Tensor, Tensor]:
    """Radians (M,) between the mask and each position's Euclidean mean, and its Fréchet mean."""
    mask = table[mask_id].double()
    euclidean, frechet = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        euclidean.append(sphere.angle(mask, sphere.combine(probs, points)))
        frechet.append(sphere.angle(mask, sphere.frechet_mean(points, probs, karcher_steps)))
    return torch.cat(euclidean), torch.cat(frechet)
