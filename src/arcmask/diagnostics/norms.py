"""Compare embedding norms with frequency ranks: whether tokens lie on one sphere, and where the mask lies.

Shapes: V vocabulary, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.diagnostics.predictions import Spread, histogram, spread
from arcmask.errors import ArcmaskError

_BINS = 24
_POINTS = 2048


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
    edges = _edges(ordered)
    ranks = _log_spaced_ranks(len(seen)) if known else []
    return Norms(
        tokens=len(seen),
        unseen=len(norm) - 1 - len(seen) if known else None,
        norm=spread(ordered),
        smallest=float(ordered.min()),
        largest=float(ordered.max()),
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
    ranks = [_mean_ranks(values) for values in (first, second)]
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(a.norm() * b.norm())
    return float(a @ b) / scale if scale > 0 else None


def _mean_ranks(values: Tensor) -> Tensor:
    _, index, count = values.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count - 1) / 2)[index]


def _edges(values: Tensor) -> Tensor:
    low, high = float(values.min()), float(values.max())
    margin = max(0.02 * (high - low), 1e-6 * max(high, 1e-6))  # so that equal norms make one bar
    return torch.linspace(low - margin, high + margin, min(60, max(10, len(values) // 5)) + 1, dtype=torch.float64)


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
