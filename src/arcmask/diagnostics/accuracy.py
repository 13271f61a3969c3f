"""Measure how often the candidates contain the true token, compared with always guessing the most frequent token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arcmask.diagnostics.predictions import Predictions


@dataclass(frozen=True)
class Accuracy:
    """The fraction of masked positions with a right guess, at each time."""

    times: list[float]
    positions: list[int]
    top_k: int
    top: list[float]  # the first candidate is right
    standard_error: list[float]  # of `top`, for independent positions
    among: list[float]  # any of the candidates is right
    frequent: list[float]  # the best constant guess, the most frequent token of these positions, is right
    frequent_id: list[int]

    @property
    def reading(self) -> str:
        middle = min(range(len(self.times)), key=lambda index: abs(self.times[index] - 0.5))
        return (
            f"At t = {self.times[middle]:g} the first candidate is right at {100 * self.top[middle]:.1f} % of "
            f"{self.positions[middle]} masked positions. One of the {self.top_k} candidates is right at "
            f"{100 * self.among[middle]:.1f} %. Always guessing the most frequent token is right at "
            f"{100 * self.frequent[middle]:.1f} %."
        )


def top_accuracy(predictions: Sequence[Predictions]) -> Accuracy:
    """Return how often the predictions at some times are right."""
    right = [at.candidates.ids == at.targets.unsqueeze(1) for at in predictions]
    counts = [torch.bincount(at.targets) for at in predictions]
    top = [float(hits[:, 0].double().mean()) for hits in right]
    positions = [len(at) for at in predictions]
    return Accuracy(
        times=[at.time for at in predictions],
        positions=positions,
        top_k=predictions[0].candidates.ids.shape[1],
        top=top,
        standard_error=[(p * (1 - p) / n) ** 0.5 for p, n in zip(top, positions, strict=True)],
        among=[float(hits.any(1).double().mean()) for hits in right],
        frequent=[float(count.max()) / n for count, n in zip(counts, positions, strict=True)],
        frequent_id=[int(count.argmax()) for count in counts],
    )
