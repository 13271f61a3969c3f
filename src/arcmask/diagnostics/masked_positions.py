"""Measure predictions at masked positions: accuracy, angles to the mask, entropies and weights, Karcher steps.

Each function takes the predictions of `predict` and returns a record.

Shapes: V vocabulary, D width, M masked positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, histogram, points_of, spread
from arcmask.feedback import Confidence

_BARS = 40
_STEPS = (0, 1, 2, 3, 5)
_CONVERGED = 50  # Karcher steps
_POSITIONS = 4096


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


@dataclass(frozen=True)
class Weights:
    """The weights of one confidence: over all positions, at each time, and as a function of entropy."""

    settings: dict[str, float]
    weight: Spread
    over_time: list[float]
    histogram: list[int]  # between the weight edges of the record
    curve: list[float]  # at the entropy edges of the record
    extreme: str | None  # a sentence if nearly all weights are near 0 or near their scale


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
        learned = "" if self.learned is None else f", and {self.learned.weight.mean:.3f} with the checkpoint's own"
        return (
            f"The mean entropy of a prediction is {self.entropy.mean:.2f} nats. The mean weight of this model is "
            f"{self.start.weight.mean:.3f} with the initial scalars ({settings}; the paper's model starts at 0.13 to "
            f"0.14){learned}. A weight of 0 feeds "
            "nothing back; a weight of 1 replaces the mask by the prediction."
            + ("" if (extreme := (self.learned or self.start).extreme) is None else f" Note: {extreme}.")
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
        extreme=confidence.describe_extreme(pooled),
    )


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
    table: Tensor, predictions: Sequence[Predictions], steps: Sequence[int] = _STEPS
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
