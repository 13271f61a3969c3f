"""Measure norms: of the embeddings by frequency rank, and along the paths from the mask to the prediction.

They show whether the tokens lie on one sphere, and how far each operator leaves the sphere through the mask.

Shapes: V vocabulary, D width, M masked positions, W weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions, Spread, histogram, points_of, spread
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence

_BINS = 24  # of ranks
_POINTS = 2048
_WEIGHTS = 51
_BARS = 40


@dataclass(frozen=True)
class Norms:
    """Norms of the tokens that occur in the text (of all tokens, without frequencies), and of the mask."""

    tokens: int
    unseen: int | None  # tokens that do not occur and are left out; None without frequencies
    norm: Spread
    smallest: float
    largest: float
    variation: float  # standard deviation / mean
    rank_correlation: float | None  # Spearman's, of norm with frequency rank; None if undefined
    mask: float
    mask_over_mean: float
    mask_above: float  # the fraction of tokens whose norm is below the mask's
    histogram_edges: list[float]
    histogram_counts: list[int]
    # The most frequent token first; empty without frequencies. A large vocabulary is thinned evenly along log(rank).
    ranks: list[int]
    norms: list[float]
    # Bins of equal width in log(rank): first rank, last rank, spread of the norms.
    bins: list[tuple[int, int, Spread]]

    @property
    def reading(self) -> str:
        rank = ""
        if self.rank_correlation is not None:
            rank = f" The rank correlation of norm with frequency rank is {signed(self.rank_correlation)}."
        return (
            f"The norms of {self.tokens} tokens have a coefficient of variation of {self.variation:.3f}; 0 means that "
            f"all tokens lie on one sphere.{rank} The mask's norm is {self.mask_over_mean:.2f} times the mean, and "
            f"{100 * self.mask_above:.0f} % of the tokens have a smaller norm."
        )


@torch.no_grad()
def norms_by_rank(table: Tensor, mask_id: int, frequencies: Tensor | None = None) -> Norms:
    """Return how the norms of a table (V, D) depend on the tokens' frequencies (V' <= V,), and where the mask lies."""
    norm = torch.linalg.vector_norm(table.double(), dim=-1).cpu()
    counts = torch.ones(len(norm), dtype=torch.long)
    if frequencies is not None:
        if len(frequencies) > len(norm):
            raise ArcmaskError(f"there are frequencies of {len(frequencies)} tokens, but the table has {len(norm)}")
        counts = torch.zeros(len(norm), dtype=torch.long)
        counts[: len(frequencies)] = frequencies.cpu()
    mask, counts[mask_id] = float(norm[mask_id]), 0
    seen = counts.argsort(descending=True, stable=True)[: int((counts > 0).sum())]
    if len(seen) == 0:
        raise ArcmaskError("no token occurs in the text, so there are no norms to measure")
    ordered, known = norm[seen], frequencies is not None
    mean = float(ordered.mean())
    low, high = float(ordered.min()), float(ordered.max())
    margin = max(0.02 * (high - low), 1e-6 * max(high, 1e-6))  # so that equal norms make one bar
    bars = min(60, max(10, len(seen) // 5))
    edges = torch.linspace(low - margin, high + margin, bars + 1, dtype=torch.float64)
    ranks = _log_spaced_ranks(len(seen)) if known else []
    return Norms(
        tokens=len(seen),
        unseen=len(norm) - 1 - len(seen) if known else None,
        norm=spread(ordered),
        smallest=low,
        largest=high,
        variation=float(ordered.std(correction=0)) / mean if mean > 0 else 0.0,
        rank_correlation=rank_correlation(-counts[seen].double(), ordered) if known else None,
        mask=mask,
        mask_over_mean=mask / mean if mean > 0 else 0.0,
        mask_above=float((ordered < mask).double().mean()),
        histogram_edges=edges.tolist(),
        histogram_counts=histogram(ordered, edges),
        ranks=ranks,
        norms=ordered[[rank - 1 for rank in ranks]].tolist(),
        bins=_bins(ordered) if known else [],
    )


def signed(value: float) -> str:
    """Format a value with its sign; a value that rounds to zero has none."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def rank_correlation(first: Tensor, second: Tensor) -> float | None:
    """Return Spearman's correlation of two (N,), equal values sharing their mean rank; None if one is constant."""
    ranks = []
    for values in (first, second):
        _, index, count = values.unique(return_inverse=True, return_counts=True)
        rank = (count.cumsum(0).double() - (count - 1) / 2)[index]
        ranks.append(rank - rank.mean())
    a, b = ranks
    scale = float(a.norm() * b.norm())
    return float(a @ b) / scale if scale > 0 else None


def _log_spaced_ranks(count: int) -> list[int]:
    """Return all ranks up to `count`, or _POINTS of them or fewer, evenly spaced in log(rank)."""
    if count <= _POINTS:
        return list(range(1, count + 1))
    return _log_space(count, _POINTS).round().long().clamp(1, count).unique().tolist()


def _log_space(last: int, points: int) -> Tensor:
    return torch.logspace(0, torch.tensor(float(last)).log10().item(), points, dtype=torch.float64)


def _bins(ordered: Tensor) -> list[tuple[int, int, Spread]]:
    count = len(ordered)
    edges = _log_space(count + 1, _BINS + 1)
    starts = sorted({*edges[:-1].round().long().clamp(1, count).tolist(), 1})
    ends = [*(start - 1 for start in starts[1:]), count]
    return [(a, b, spread(ordered[a - 1 : b])) for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class LerpNorms:
    """Norms along LERP's path divided by the mask's norm. SLERP stays at 1, on the sphere through the mask."""

    positions: int
    weights: list[float]
    ratio: list[Spread]
    deepest: Spread  # the smallest ratio along each position's path
    deepest_edges: list[float]
    deepest_histogram: list[int]
    mean_norm: Spread  # the Euclidean mean's norm, where the path ends
    own_weight: float  # the mean weight that the confidence gives
    own_ratio: Spread  # the ratio at each position's own weight
    tokens: Spread  # the tokens' norms
    thickness: float  # the standard deviation of the tokens' norms

    @property
    def reading(self) -> str:
        dip, deviations = 1 - self.deepest.median, ""
        if self.thickness > 0:
            deviations = f"; {dip / self.thickness:.1f} standard deviations of the tokens' norms"
        return (
            f"LERP's path sinks {100 * dip:.0f} % below the sphere through the mask (median{deviations}). At the "
            f"weights of the confidence, {self.own_weight:.2f} on average, its mean norm is {self.own_ratio.mean:.2f} "
            f"times the mask's. 90 % of the tokens have norms of {self.tokens.low:.2f} to {self.tokens.high:.2f} times "
            "the mask's."
        )


@torch.no_grad()
def lerp_norms(
    table: Tensor, mask_id: int, predictions: Sequence[Predictions], confidence: Confidence | None = None
) -> LerpNorms:
    """Return how far LERP leaves the sphere, for a table (V, D) and the model's confidence (default: the paper's).

    |(1 - w) m + w mu|^2 is a parabola in w, so two inner products per position give the whole path.
    """
    confidence = Confidence() if confidence is None else confidence
    candidates = Candidates.join(at.candidates for at in predictions)
    mask = table[mask_id].double()
    square = mask.square().sum()
    if not bool(square > 0):
        raise ArcmaskError("the mask's embedding is zero, so there is no sphere through it")
    along, mean_square = [], []
    for points, probs in points_of(table, candidates, torch.float64):
        mean = sphere.combine(probs, points)
        along.append(mean @ mask)
        mean_square.append(mean.square().sum(-1))
    path = torch.cat(along) / square, torch.cat(mean_square) / square
    weights = torch.linspace(0, 1, _WEIGHTS, dtype=torch.float64)
    opening = 1 - 2 * path[0] + path[1]
    is_open = opening > 0  # where the parabola has a lowest point
    lowest = torch.where(is_open, (1 - path[0]) / torch.where(is_open, opening, 1.0), 0.0).clamp(0, 1)
    deepest = _ratio(*path, lowest).cpu()
    edges = torch.linspace(0, 1, _BARS + 1, dtype=torch.float64)
    own = confidence(candidates.entropy).to(mask)
    without_mask = torch.cat([table[:mask_id], table[mask_id + 1 :]])
    tokens = torch.linalg.vector_norm(without_mask.double(), dim=-1) / square.sqrt()
    return LerpNorms(
        positions=len(candidates),
        weights=weights.tolist(),
        ratio=[spread(_ratio(*path, weight)) for weight in weights],
        deepest=spread(deepest),
        deepest_edges=edges.tolist(),
        deepest_histogram=histogram(deepest.clamp(0, 1), edges),
        mean_norm=spread(path[1].sqrt()),
        own_weight=float(own.mean()),
        own_ratio=spread(_ratio(*path, own)),
        tokens=spread(tokens),
        thickness=float(tokens.std(correction=0)),
    )


def _ratio(along: Tensor, mean_square: Tensor, weight: Tensor) -> Tensor:
    """Return |(1 - w) m + w mu| / |m| (M,) from <m, mu> / |m|^2, |mu|^2 / |m|^2, and one weight or (M,) weights."""
    squared = (1 - weight) ** 2 + 2 * weight * (1 - weight) * along + weight**2 * mean_square
    return squared.clamp_min(0).sqrt()


@dataclass(frozen=True)
class SpherePaths:
    """Each operator's path (W, 3) from the mask, on the unit sphere, to one mean with that angle and norm."""

    degrees: float
    mean_norm: float
    weights: list[float]
    paths: dict[str, list[list[float]]]

    @property
    def reading(self) -> str:
        lowest = {name: min(math.hypot(*point) for point in path) for name, path in self.paths.items()}
        inside = [f"{OPERATORS[name].label} {norm:.2f}" for name, norm in lowest.items() if norm < 1 - 1e-6]
        return (
            f"The paths are drawn at the model's mean angle of {self.degrees:.0f} degrees, to a mean of "
            f"{self.mean_norm:.2f} times the mask's norm. Smallest distance from the centre, in radii: "
            f"{', '.join([*inside, 'all others 1'] if len(inside) < len(lowest) else inside)}. "
            "Dots mark equal steps of the weight."
        )


@torch.no_grad()
def sphere_paths(angle: float, mean_norm: float = 1.0, count: int = 121) -> SpherePaths:
    """Return the path of every operator in three dimensions, at an angle in radians and `count` weights."""
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
            name: operator(mask, candidates, probs, weight).tolist()
            for name, operator in OPERATORS.items()
            if name != "none"
        },
    )
