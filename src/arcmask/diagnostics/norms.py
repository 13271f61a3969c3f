"""Embedding norms against frequency rank: do tokens lie on a shell, and does the mask lie there too?

Knows a table and how often each token occurs. Shapes: V vocabulary, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.diagnostics.predictions import Spread, spread
from arcmask.errors import ArcmaskError

_BINS = 24
_POINTS = 2048


@dataclass(frozen=True)
class Norms:
    """Norms of the tokens that occur (of all, if frequencies are not known), and of the mask."""

    tokens: int
    unseen: int | None  # tokens that never occur, and are left out; None if frequencies are not known
    norm: Spread
    smallest: float
    largest: float
    variation: float  # standard deviation / mean
    rank_correlation: float | None  # Spearman's, of norm with frequency rank; None if there is none
    mask: float
    mask_over_mean: float
    mask_above: float  # the share of tokens whose norm is below the mask's
    histogram_edges: list[float]
    histogram_counts: list[int]
    # By falling frequency, and empty if that is not known. Of large vocabularies tokens evenly along log(rank).
    ranks: list[int]
    norms: list[float]
    # Ranks in bins of equal width on a log scale: first and last rank, and the spread of norms.
    bins: list[tuple[int, int, Spread]]

    @property
    def reading(self) -> str:
        wanted, found = "a coefficient of variation", f"{self.variation:.3f}"
        if self.rank_correlation is not None:
            wanted, found = f"{wanted} and a rank correlation", f"{found} and {signed(self.rank_correlation)}"
        return (
            f"On a shell that is the same for common and rare tokens norms have {wanted} near 0, and here, over "
            f"{self.tokens} tokens, {found}; the mask's norm is {self.mask_over_mean:.2f} times the mean, and "
            f"{100 * self.mask_above:.0f} % of tokens have a smaller one."
        )


@torch.no_grad()
def norms_by_rank(table: Tensor, mask_id: int, frequencies: Tensor | None = None) -> Norms:
    """(V, D), id, counts (V' <= V,) -> how norms stand to frequency, and the mask to both."""
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
        raise ArcmaskError("not a single token occurs, so that there is no norm to look at")
    ordered, known = norm[seen], frequencies is not None
    mean = float(ordered.mean())
    edges, histogram = _histogram(ordered)
    shown = _along_log(len(seen)) if known else []
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
        histogram_edges=edges,
        histogram_counts=histogram,
        ranks=[place + 1 for place in shown],
        norms=ordered[shown].tolist(),
        bins=_bins(ordered) if known else [],
    )


def signed(value: float) -> str:
    """With its sign, and without one for what rounds to zero."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def rank_correlation(first: Tensor, second: Tensor) -> float | None:
    """Spearman's, with equal values sharing their mean rank; None if all values of one are equal."""
    ranks = [_mean_ranks(values) for values in (first, second)]
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(a.norm() * b.norm())
    return float(a @ b) / scale if scale > 0 else None


def _mean_ranks(values: Tensor) -> Tensor:
    _, place, count = values.unique(return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count - 1) / 2)[place]


def _histogram(values: Tensor) -> tuple[list[float], list[int]]:
    low, high = float(values.min()), float(values.max())
    margin = max(0.02 * (high - low), 1e-6 * max(high, 1e-6))  # equal norms make one bar, not none
    edges = torch.linspace(low - margin, high + margin, min(60, max(10, len(values) // 5)) + 1, dtype=torch.float64)
    return edges.tolist(), torch.histogram(values, edges).hist.long().tolist()


def _along_log(count: int) -> list[int]:
    """Places below `count`, at most so many as are drawn, evenly on a log scale where they are not all taken."""
    if count <= _POINTS:
        return list(range(count))
    places = torch.logspace(0, torch.tensor(float(count)).log10().item(), _POINTS, dtype=torch.float64)
    return (places.round().long().clamp(1, count).unique() - 1).tolist()


def _bins(ordered: Tensor) -> list[tuple[int, int, Spread]]:
    count = len(ordered)
    edges = torch.logspace(0, torch.tensor(float(count + 1)).log10().item(), _BINS + 1, dtype=torch.float64)
    starts = sorted({*edges[:-1].round().long().clamp(1, count).tolist(), 1})
    ends = [*(start - 1 for start in starts[1:]), count]
    return [(a, b, spread(ordered[a - 1 : b])) for a, b in zip(starts, ends, strict=True)]
