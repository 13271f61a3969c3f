"""Entropies of the predictions, and the weight that a confidence makes of them. Shapes: M masked positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.diagnostics.predictions import Predictions, Spread, spread
from arcmask.feedback import Confidence

_BARS = 40


@dataclass(frozen=True)
class Weights:
    """The weights that one confidence gives: over all positions, at each time, and as a function of entropy."""

    settings: dict[str, float]
    weight: Spread
    over_time: list[float]
    histogram: list[int]  # between the weight edges of the record
    curve: list[float]  # at the entropy edges of the record


@dataclass(frozen=True)
class ConfidenceWeights:
    """Entropies in nats, and weights as training starts and, if there is learned feedback, as it learned them."""

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
        given = ", ".join(f"{name} {value:.3g}" for name, value in self.start.settings.items())
        learned = "" if self.learned is None else f", and with those of the checkpoint {self.learned.weight.mean:.3f}"
        return (
            f"Predictions have {self.entropy.mean:.2f} nats of entropy on average; with the confidence's values at "
            f"step 0 ({given}) the weight is {self.start.weight.mean:.3f}{learned} (the paper starts near 0.13-0.14): "
            "at 0 nothing is fed back, at 1 the prediction takes the mask's place."
        )


@torch.no_grad()
def confidence_weights(
    predictions: Sequence[Predictions], start: Confidence | None = None, learned: Confidence | None = None
) -> ConfidenceWeights:
    """Predictions, and the confidence at step 0 (by default the paper's) and now -> entropies and weights."""
    entropies = [at.candidates.entropy.double().cpu() for at in predictions]
    together = torch.cat(entropies)
    entropy_edges = torch.linspace(0, 1.02 * max(float(together.max()), 1e-3), _BARS + 1, dtype=torch.float64)
    weight_edges = torch.linspace(0, 1, 2 * _BARS + 1, dtype=torch.float64)
    return ConfidenceWeights(
        times=[at.time for at in predictions],
        positions=[len(at) for at in predictions],
        entropy=spread(together),
        entropy_over_time=[spread(at) for at in entropies],
        entropy_edges=entropy_edges.tolist(),
        entropy_histogram=torch.histogram(together, entropy_edges).hist.long().tolist(),
        weight_edges=weight_edges.tolist(),
        start=_weights(Confidence() if start is None else start, entropies, entropy_edges, weight_edges),
        learned=None if learned is None else _weights(learned, entropies, entropy_edges, weight_edges),
    )


def _weights(confidence: Confidence, entropies: list[Tensor], at: Tensor, edges: Tensor) -> Weights:
    weights = [confidence(some).double().cpu() for some in entropies]
    together = torch.cat(weights)
    names = ("scale", "centre", "steepness")
    settings = {name: float(getattr(confidence, name)) for name in names} if confidence.fixed is None else {}
    return Weights(
        settings=settings or {"fixed": float(confidence.fixed or 0.0)},
        weight=spread(together),
        over_time=[float(weight.mean()) for weight in weights],
        histogram=torch.histogram(together, edges).hist.long().tolist(),
        curve=confidence(at).tolist(),
    )
