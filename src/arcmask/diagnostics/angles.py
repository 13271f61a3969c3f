"""Measure the angle between the mask and the predicted mean: the length of the arc that feedback moves along.

Shapes: V vocabulary, D width, M masked positions.
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
    """Degrees between the mask and the candidates' mean, at each time and over all masked positions."""

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
            f"The mean angle between mask and prediction is {self.euclidean_mean:.1f} degrees for the Euclidean mean "
            f"and {self.frechet_mean:.1f} for the Fréchet mean (paper: about 73). Over t the Euclidean angle lies "
            f"between {min(means):.1f} and {max(means):.1f}. The smaller the angle, the less the operators differ."
        )


def angles_over_time(table: Tensor, mask_id: int, predictions: Sequence[Predictions], karcher_steps: int = 3) -> Angles:
    """Return the angles to both means for a table (V, D) and predictions at some times."""
    pairs = [_degrees(table, mask_id, at.candidates, karcher_steps) for at in predictions]
    euclidean, frechet = zip(*pairs, strict=True)
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
def _degrees(table: Tensor, mask_id: int, candidates: Candidates, karcher_steps: int) -> tuple[Tensor, Tensor]:
    """Return the degrees (M,) between the mask and each position's Euclidean mean, and its Fréchet mean."""
    mask = table[mask_id].double()
    euclidean, frechet = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        euclidean.append(sphere.angle(mask, sphere.combine(probs, points)))
        frechet.append(sphere.angle(mask, sphere.frechet_mean(points, probs, karcher_steps)))
    return torch.cat(euclidean).rad2deg(), torch.cat(frechet).rad2deg()
