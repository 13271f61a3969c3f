"""Does a prediction say more than the commonest token would? Knows predictions and the tokens they are about."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arcmask.diagnostics.predictions import Predictions, nearest


@dataclass(frozen=True)
class Accuracy:
    """Shares of masked positions at each time: where the guess is the token that was there."""

    times: list[float]
    positions: list[int]
    top_k: int
    top: list[float]  # the first candidate
    standard_error: list[float]  # of `top`, as if positions were independent
    among: list[float]  # any of the candidates
    # Always guessing the token that is most frequent among these very positions: the best constant guess there is.
    frequent: list[float]
    frequent_id: list[int]

    @property
    def reading(self) -> str:
        place = nearest(self.times)
        return (
            f"At t = {self.times[place]:g} the first candidate is right at {100 * self.top[place]:.1f} % of "
            f"{self.positions[place]} masked positions and the right token is among the {self.top_k} candidates at "
            f"{100 * self.among[place]:.1f} %, against {100 * self.frequent[place]:.1f} % for always guessing the most "
            "frequent token: what lies between is what feedback has to say."
        )


def top_accuracy(predictions: Sequence[Predictions]) -> Accuracy:
    """Predictions at some times -> how often they are right."""
    top, among, frequent, frequent_id, error = [], [], [], [], []
    for at in predictions:
        right = at.candidates.ids == at.targets.unsqueeze(1)
        share = float(right[:, 0].double().mean())
        top.append(share)
        error.append((share * (1 - share) / len(at)) ** 0.5)
        among.append(float(right.any(1).double().mean()))
        counts = torch.bincount(at.targets)
        frequent_id.append(int(counts.argmax()))
        frequent.append(float(counts.max()) / len(at))
    return Accuracy(
        times=[at.time for at in predictions],
        positions=[len(at) for at in predictions],
        top_k=predictions[0].candidates.ids.shape[1],
        top=top,
        standard_error=error,
        among=among,
        frequent=frequent,
        frequent_id=frequent_id,
    )
