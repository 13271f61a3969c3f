"""Predict masked positions with a denoiser, and summarise numbers over those positions.

The other diagnostics measure these predictions. Only candidates are kept; logits exist for a few rows at a time.

Shapes: N rows, L positions, V vocabulary, D width, M masked positions, K candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from arcmask.candidates import Candidates, top_candidates
from arcmask.errors import ArcmaskError
from arcmask.model import Denoiser
from arcmask.model.denoiser import maskable
from arcmask.rows import Rows, attention_mask_of, hidden_of, tokens_of

TIMES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_CHUNK = 1 << 22  # numbers in memory at a time: of logits, and of candidates' embeddings
_PASS = 2048  # positions in one pass of the denoiser


@dataclass(frozen=True)
class Predictions:
    """The masked positions of some rows at one time: the true tokens (M,), and the candidates for them."""

    time: float
    targets: Tensor
    candidates: Candidates

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Spread:
    """A distribution in four numbers: the mean, and the 5 %, 50 % and 95 % quantiles."""

    mean: float
    low: float
    median: float
    high: float


def spread(values: Tensor) -> Spread:
    """Return the spread of at least one value (M,)."""
    values = values.double()
    low, median, high = torch.quantile(values, values.new_tensor([0.05, 0.5, 0.95])).tolist()
    return Spread(mean=float(values.mean()), low=low, median=median, high=high)


def histogram(values: Tensor, edges: Tensor) -> list[int]:
    """Count the values (M,) on the CPU between consecutive edges (E,); return E - 1 counts."""
    return torch.histogram(values, edges).hist.long().tolist()


@torch.no_grad()
def predict(
    denoiser: Denoiser, rows: Rows, times: Sequence[float] = TIMES, *, top_k: int = 3, seed: int = 0
) -> list[Predictions]:
    """Mask clean rows (N, L) at each time, and return what the draft pass predicts there.

    At time t a fraction t of the positions is masked. All times share one random draw, so a position that is masked at
    one time is masked at every later time.
    """
    uniform = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [_predict_at(denoiser, rows, time, uniform < time, top_k) for time in times]


def _predict_at(denoiser: Denoiser, rows: Rows, time: float, masked: Tensor, top_k: int) -> Predictions:
    if not bool(masked.any()):
        raise ArcmaskError(f"at t = {time} none of the {rows.numel()} tokens is masked; use more tokens")
    device, vocabulary = denoiser.table.device, denoiser.table.shape[0]
    rows, masked = rows.to(device), maskable(denoiser, rows, masked).to(device)
    tokens = tokens_of(rows).masked_fill(masked, denoiser.mask_id)
    height, parts = max(1, _PASS // rows.shape[1]), []
    for start in range(0, len(rows), height):
        batch = slice(start, start + height)
        embeddings = embedding(tokens[batch], denoiser.table)
        hidden = hidden_of(denoiser, embeddings, attention_mask_of(rows[batch]))[masked[batch]]
        for chunk in hidden.split(max(1, _CHUNK // vocabulary)):
            parts.append(top_candidates(denoiser.logits(chunk), top_k, exclude=denoiser.mask_id))
    return Predictions(time=time, targets=tokens_of(rows)[masked], candidates=Candidates.join(parts).check())


def points_of(table: Tensor, candidates: Candidates, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the candidates' embeddings (m, K, D) and probabilities (m, K), a block of rows at a time."""
    height = max(1, _CHUNK // (candidates.ids.shape[1] * table.shape[1]))
    for ids, probs in zip(candidates.ids.split(height), candidates.probs.split(height), strict=True):
        yield table[ids].to(dtype), probs.to(dtype)
