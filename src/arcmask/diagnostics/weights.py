"""Measure the entropies of the predictions, and the feedback weights that a confidence gives them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.diagnostics.predictions import Predictions, Spread, histogram, spread
from arcmask.feedback import Confidence

_BARS = 40


@dataclass(frozen=True)
class Weights:
    """The weights of one confidence: over all positions, at each time, and as a function of entropy."""

    settings: dict[str, float]
    weight: Spread
    over_time: list[float]
    histogram: list[int]  # between the weight edges of the record
    curve: list[float]  # at the entropy edges of the record


@dataclass(frozen=True)
class ConfidenceWeights:
    """Entropies in nats, and the weights at the start of training and, for trained feedback, in the checkpoint."""

    times: list[float]
    positions: list[int]
    entropy: Spread
    entropy_over_time: list[Spread]
    entropy_edges: list[float]
    entropy_histogram: list[int]
    weight_edges: list[float]
    start: Weights
    learned: Weights | None

    @property
    def reading(self) -> str:
        settings = ", ".join(f"{name} {value:.3g}" for name, value in self.start.settings.items())
        learned = "" if self.learned is None else f" and {self.learned.weight.mean:.3f} in the checkpoint"
        return (
            f"The mean entropy of a prediction is {self.entropy.mean:.2f} nats. The mean weight is "
            f"{self.start.weight.mean:.3f} at step 0 ({settings}; paper: 0.13 to 0.14){learned}. A weight of 0 feeds "
            "nothing back; a weight of 1 replaces the mask by the prediction."
        )


@torch.no_grad()
def confidence_weights(
    predictions: Sequence[Predictions], start: Confidence | None = None, learned: Confidence | None = None
) -> ConfidenceWeights:
    """Return entropies and weights for the confidence at step 0 (default: the paper's) and the learned one."""
    entropies = [at.candidates.entropy.double().cpu() for at in predictions]
    pooled = torch.cat(entropies)
    entropy_edges = torch.linspace(0, 1.02 * max(float(pooled.max()), 1e-3), _BARS + 1, dtype=torch.float64)
    weight_edges = torch.linspace(0, 1, 2 * _BARS + 1, dtype=torch.float64)
    return ConfidenceWeights(
        times=[at.time for at in predictions],
        positions=[len(at) for at in predictions],
        entropy=spread(pooled),
        entropy_over_time=[spread(at) for at in entropies],
        entropy_edges=entropy_edges.tolist(),
        entropy_histogram=histogram(pooled, entropy_edges),
        weight_edges=weight_edges.tolist(),
        start=_weights(Confidence() if start is None else start, entropies, entropy_edges, weight_edges),
        learned=None if learned is None else _weights(learned, entropies, entropy_edges, weight_edges),
    )


def _weights(confidence: Confidence, entropies: list[Tensor], entropy_edges: Tensor, weight_edges: Tensor) -> Weights:
    weights = [confidence(at).double().cpu() for at in entropies]
    pooled = torch.cat(weights)
    names = ("scale", "centre", "steepness") if confidence.fixed is None else ("fixed",)
    return Weights(
        settings={name: float(getattr(confidence, name)) for name in names},
        weight=spread(pooled),
        over_time=[float(weight.mean()) for weight in weights],
        histogram=histogram(pooled, weight_edges),
        curve=confidence(entropy_edges).tolist(),
    )
