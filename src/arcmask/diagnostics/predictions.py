"""What a denoiser predicts at masked positions: all that the other diagnostics look at.

Knows a denoiser and rows of tokens. Only candidates are kept; logits exist for a few rows at a time.

Shapes: N rows, L positions, V vocabulary, D width, M masked positions, K candidates.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from arcmask.candidates import Candidates, top_candidates
from arcmask.errors import ArcmaskError
from arcmask.model import Denoiser, autocast

TIMES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Numbers that exist at a time: of logits, and of candidates' embeddings.
_CHUNK = 1 << 22
# Positions in one pass of the denoiser.
_PASS = 2048


@dataclass(frozen=True)
class Predictions:
    """The masked positions of some rows at one time: the tokens that were there (M,), and the candidates for them."""

    time: float
    targets: Tensor
    candidates: Candidates

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Spread:
    """A distribution in four numbers."""

    mean: float
    low: float  # 5 % lie below
    median: float
    high: float  # 5 % lie above


def spread(values: Tensor) -> Spread:
    """(M,) with M of at least 1 -> its spread."""
    values = values.double()
    low, median, high = torch.quantile(values, values.new_tensor([0.05, 0.5, 0.95])).tolist()
    return Spread(mean=float(values.mean()), low=low, median=median, high=high)


@torch.no_grad()
def predict(
    denoiser: Denoiser, rows: Tensor, times: Sequence[float] = TIMES, *, top_k: int = 3, seed: int = 0
) -> list[Predictions]:
    """Clean rows (N, L) -> the draft pass's predictions at each time, for positions that the seed chooses.

    All times share one draw, so that what is masked at a time stays masked at a later one, and differences between
    times are not those between draws.
    """
    uniform = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [_predict_at(denoiser, rows, time, uniform < time, top_k) for time in times]


def _predict_at(denoiser: Denoiser, rows: Tensor, time: float, masked: Tensor, top_k: int) -> Predictions:
    if not bool(masked.any()):
        raise ArcmaskError(f"at t = {time} none of the {rows.numel()} tokens is masked; look at more tokens")
    device, vocabulary = denoiser.table.device, denoiser.table.shape[0]
    rows, masked = rows.to(device), masked.to(device)
    tokens = rows.masked_fill(masked, denoiser.mask_id)
    height, parts = max(1, _PASS // rows.shape[1]), []
    for start in range(0, len(rows), height):
        batch = slice(start, start + height)
        with autocast("auto", device):
            hidden = denoiser.hidden(embedding(tokens[batch], denoiser.table))[masked[batch]]
            for some in hidden.split(max(1, _CHUNK // vocabulary)):
                parts.append(top_candidates(denoiser.logits(some), top_k, exclude=denoiser.mask_id))
    return Predictions(time=time, targets=rows[masked], candidates=join(parts))


def join(parts: Iterable[Candidates]) -> Candidates:
    """The rows of all, one after another."""
    parts = list(parts)
    return Candidates(
        ids=torch.cat([part.ids for part in parts]),
        probs=torch.cat([part.probs for part in parts]),
        entropy=torch.cat([part.entropy for part in parts]),
    )


def points_of(table: Tensor, candidates: Candidates, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """The candidates' embeddings (m, K, D) and probabilities (m, K), a block of rows at a time."""
    height = max(1, _CHUNK // (candidates.ids.shape[1] * table.shape[1]))
    for ids, probs in zip(candidates.ids.split(height), candidates.probs.split(height), strict=True):
        yield table[ids].to(dtype), probs.to(dtype)


def nearest(times: Sequence[float], wanted: float = 0.5) -> int:
    """The place of the time that is nearest to the wanted one."""
    return min(range(len(times)), key=lambda place: abs(times[place] - wanted))
