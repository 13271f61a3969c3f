"""Batches of rows in an order that depends on the seed and the step alone.

The rows form one stream, epoch after epoch, and each epoch is a permutation of all rows. Batch s is the s-th piece of
the stream, so a batch may span two epochs. Within an epoch no row is left out or repeated. There is no state to save.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from arcmask.data.prepared import PreparedCorpus
from arcmask.errors import ArcmaskError

_ROUNDS = 8


class Batches:
    """Training batches. `batch_size` is the global batch size; each of `world` ranks gets an equal part."""

    def __init__(self, corpus: PreparedCorpus, *, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size < 1:
            raise ArcmaskError(f"the batch size is {batch_size}, but must be at least 1")
        _check_rank(rank, world)
        if batch_size % world:
            raise ArcmaskError(f"the batch size {batch_size} cannot be shared equally by {world} processes")
        self.corpus, self.batch_size, self.seed, self.rank, self.world = corpus, batch_size, seed, rank, world

    def batch(self, step: int) -> Tensor:
        """Return this rank's rows of a step, counted from 0: (batch_size / world, L)."""
        return self.corpus.rows(self.indices(step))

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of this rank's rows of a step: (batch_size / world,)."""
        share = self.batch_size // self.world
        first = step * self.batch_size + self.rank * share
        epochs, offsets = np.divmod(np.arange(first, first + share), len(self.corpus))
        return shuffled(offsets, len(self.corpus), self.seed, epochs)

    def epoch(self, step: int) -> float:
        """Return how many times the corpus has been read when a step begins."""
        return step * self.batch_size / len(self.corpus)


def in_order(corpus: PreparedCorpus, *, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Tensor]:
    """Yield every row once, in order: this rank's share of the batches (batch_size, L). The last may be smaller."""
    _check_rank(rank, world)
    for start in range(rank * batch_size, len(corpus), batch_size * world):
        yield corpus.rows(np.arange(start, min(start + batch_size, len(corpus))))


def shuffled(positions: NDArray[np.int64], count: int, seed: int, epochs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row at each position of its epoch's permutation of `count` rows: (n,), (n,) -> (n,).

    The permutation is never stored. A Feistel network permutes the numbers below a power of four. A number that is not
    a row passes through it again until it is one, so every row occurs exactly once.
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    keys = _mix(_mix(np.full(positions.shape, seed % (1 << 64), dtype=np.uint64)) + epochs.astype(np.uint64))
    rows = positions.astype(np.uint64)
    outside = np.ones(positions.shape, dtype=bool)
    while outside.any():
        value, key = rows[outside], keys[outside]
        left, right = value >> half, value & low
        for number in range(_ROUNDS):
            left, right = right, left ^ (_mix(_mix(key + np.uint64(number)) + right) & low)
        rows[outside] = (left << half) | right
        outside = rows >= np.uint64(count)
    return rows.astype(np.int64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit numbers so that each bit depends on all bits. The constants are odd and otherwise arbitrary."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD6E8FEB86659FD93)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return values ^ (values >> np.uint64(32))


def _check_rank(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ArcmaskError(f"the rank is {rank}, but must lie between 0 and {world - 1}")
