"""Candidates: the top-k ids of a prediction, their probabilities, and the entropy of the whole distribution.

This module knows logits, not models. Rows are read once, in blocks that fit in the processor's cache, so no second
(M, V) tensor is built. Candidates carry no gradient.

Shapes: M rows (masked positions), V vocabulary, K candidates.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.blocks import block_rows
from arcmask.errors import ArcmaskError

_CHUNK = 64  # the k largest logits of a row lie in the k chunks of this size with the largest maxima
_BLOCK = {"cpu": 1 << 20, "gpu": 1 << 25}  # logits in a block; on a CPU, a block and its exponentials fit in the cache
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Candidates:
    """The top-k predictions of each row, and the entropy of the whole distribution."""

    ids: Tensor  # (M, K), by falling probability
    probs: Tensor  # (M, K), which sum to one
    entropy: Tensor  # (M,), in nats

    def __len__(self) -> int:
        return self.ids.shape[0]

    def __getitem__(self, rows: Tensor) -> "Candidates":
        """Return the candidates of some rows, given by index or mask."""
        return Candidates(self.ids[rows], self.probs[rows], self.entropy[rows])

    def to(self, device: torch.device, dtype: torch.dtype) -> "Candidates":
        """Return the candidates on a device, their probabilities and entropies in a dtype."""
        return Candidates(self.ids.to(device), self.probs.to(device, dtype), self.entropy.to(device, dtype))

    def check(self, rows: Tensor | None = None) -> "Candidates":
        """Return the candidates, or raise if a row has none. `rows` (M,) are the rows' numbers in the logits.

        Candidates on a GPU wait for it here.
        """
        is_good = self.entropy.isfinite()
        if not bool(is_good.all()):
            bad = (~is_good).nonzero().squeeze(1)
            row = int(bad[0] if rows is None else rows[bad[0]])
            raise ArcmaskError(
                f"row {row} of the logits has NaN, +inf or only -inf, so it has no candidates; "
                f"{len(bad)} of {len(self)} rows are like this"
            )
        return self

    @staticmethod
    def join(parts: "Iterable[Candidates]") -> "Candidates":
        """Concatenate the rows of several candidates."""
        ids, probs, entropy = zip(*((part.ids, part.probs, part.entropy) for part in parts), strict=True)
        return Candidates(torch.cat(ids), torch.cat(probs), torch.cat(entropy))


@torch.no_grad()
def top_candidates(logits: Tensor, k: int, *, rows: Tensor | None = None, exclude: int | None = None) -> Candidates:
    """Return the top-k candidates of logits (N, V), for every row or for the M rows with the indices `rows`.

    `exclude` is an id that gets no probability: the mask's own, which a denoiser must never predict. Logits may be
    -inf, but not all of a row. On a CPU a row with NaN, +inf or only -inf is an error; on a GPU its entropy is NaN, and
    `SoftMask` or `Candidates.check` raises the error. Entropy and probabilities are computed in float32, or in float64
    for float64 logits.

    >>> import torch
    >>> from arcmask.candidates import top_candidates
    >>> candidates = top_candidates(torch.tensor([[0.0, 2.0, 1.0]]), k=2)
    >>> candidates.ids, candidates.probs
    (tensor([[1, 2]]), tensor([[0.7311, 0.2689]]))
    """
    if logits.ndim != 2:
        raise ArcmaskError(f"logits must have the shape (M, V), but they have {tuple(logits.shape)}")
    vocabulary = logits.shape[1]
    if not 1 <= k <= vocabulary:
        raise ArcmaskError(f"top_k is {k}, but must lie between 1 and the vocabulary's size, {vocabulary}")
    count = logits.shape[0] if rows is None else rows.shape[0]
    dtype = torch.promote_types(logits.dtype, torch.float32)
    ids = torch.empty(count, k, dtype=torch.long, device=logits.device)
    probs = torch.empty(count, k, dtype=dtype, device=logits.device)
    entropy = torch.empty(count, dtype=dtype, device=logits.device)

    height = min(block_rows(logits.device, vocabulary, **_BLOCK), max(1, count))
    block_buffer = torch.empty(height, vocabulary, dtype=dtype, device=logits.device)
    power_buffer = torch.empty_like(block_buffer)
    for start in range(0, count, height):
        stop = min(start + height, count)
        block = block_buffer[: stop - start]
        block.copy_(logits[start:stop] if rows is None else logits[rows[start:stop]])
        if exclude is not None:
            block[:, exclude] = -torch.inf
        top, ids[start:stop] = _top_k(block, k)
        entropy[start:stop] = _entropy(block, top[:, :1], power_buffer[: stop - start])
        probs[start:stop] = torch.softmax(top, dim=-1)
    candidates = Candidates(ids=ids, probs=probs, entropy=entropy)
    # On a GPU this would wait for the logits.
    return candidates.check(rows) if logits.device.type == "cpu" else candidates


def _top_k(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the exact top-k values and ids of each row, found from the maxima of its chunks."""
    height, vocabulary = block.shape
    chunks = vocabulary // _CHUNK
    if chunks < 2 * k:
        top = block.topk(k)
        return top.values, top.indices
    maxima = block[:, : chunks * _CHUNK].unflatten(1, (chunks, _CHUNK)).amax(-1)
    first = maxima.topk(k).indices * _CHUNK
    offsets = torch.arange(_CHUNK, device=block.device)
    ids = (first.unsqueeze(-1) + offsets).flatten(1)
    tail = torch.arange(chunks * _CHUNK, vocabulary, device=block.device).expand(height, -1)
    ids = torch.cat([ids, tail], dim=1)
    top = block.gather(1, ids).topk(k)
    return top.values, ids.gather(1, top.indices)


def _entropy(block: Tensor, largest: Tensor, powers: Tensor) -> Tensor:
    """Return the entropy of each row's softmax, log Z - sum(x exp(x)) / Z with x = logit - max; overwrite `block`."""
    # Powers of two are about twice as fast as exponentials.
    in_bits = block.sub_(largest).mul_(_LOG2_E)
    torch.exp2(in_bits, out=powers)
    total = powers.sum(-1)
    # 0 * -inf is NaN; it counts as 0.
    weighted = in_bits.mul_(powers).nansum(-1) / _LOG2_E
    # Rounding can make the entropy of a peaked row slightly negative.
    return (total.log() - weighted / total).clamp_min_(0.0)
