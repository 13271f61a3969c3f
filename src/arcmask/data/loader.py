"""Batches of rows, in an order that is a function of seed, epoch and step alone.

Knows how many rows there are and which come when; nothing is drawn, stored or replayed. The rows come as one stream,
epoch after epoch, each a permutation of all rows; batch number s is the s-th stretch of it. So a batch may hold the
end of one epoch and the beginning of the next, and no row is ever left out or repeated within an epoch.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from arcmask.data.prepared import PreparedCorpus
from arcmask.errors import ArcmaskError

_ROUNDS = 8


class Batches:
    """Training batches. `batch_size` is the global one; each of `world` ranks gets its slice of it."""

    def __init__(self, corpus: PreparedCorpus, *, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size < 1:
            raise ArcmaskError(f"the batch size is {batch_size}, but must be at least 1")
        _check_rank(rank, world)
        if batch_size % world:
            raise ArcmaskError(f"the batch size {batch_size} cannot be shared equally by {world} processes")
        self.corpus, self.batch_size, self.seed, self.rank, self.world = corpus, batch_size, seed, rank, world

    def batch(self, step: int) -> Tensor:
        """This rank's rows of a step, counted from 0: (batch_size / world, L)."""
        return self.corpus.rows(self.indices(step))

    def indices(self, step: int) -> NDArray[np.int64]:
        """Which rows they are."""
        share = self.batch_size // self.world
        first = step * self.batch_size + self.rank * share
        epochs, offsets = np.divmod(np.arange(first, first + share), len(self.corpus))
        return shuffled(offsets, len(self.corpus), self.seed, epochs)

    def epoch(self, step: int) -> float:
        """How many times the corpus has been read when a step begins."""
        return step * self.batch_size / len(self.corpus)


def in_order(corpus: PreparedCorpus, *, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Tensor]:
    """Every row once, in order, for validation: this rank's share of the batches, the last one perhaps smaller."""
    _check_rank(rank, world)
    for start in range(rank * batch_size, len(corpus), batch_size * world):
        yield corpus.rows(np.arange(start, min(start + batch_size, len(corpus))))


def shuffled(places: NDArray[np.int64], count: int, seed: int, epochs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row at each place of its epoch's permutation of `count` rows, without making the permutation.

    A Feistel network permutes the numbers below a power of four; a number that falls outside the rows is sent through
    it again until it falls inside, which visits every row exactly once.
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    keys = _mix(_mix(np.full(places.shape, seed % (1 << 64), dtype=np.uint64)) + epochs.astype(np.uint64))
    found = places.astype(np.uint64)
    outside = np.ones(places.shape, dtype=bool)
    while outside.any():
        value, key = found[outside], keys[outside]
        left, right = value >> half, value & low
        for number in range(_ROUNDS):
            left, right = right, left ^ (_mix(_mix(key + np.uint64(number)) + right) & low)
        found[outside] = (left << half) | right
        outside = found >= np.uint64(count)
    return found.astype(np.int64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits so that each depends on all (multiply and shift; the constants are odd and otherwise free)."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD6E8FEB86659FD93)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return values ^ (values >> np.uint64(32))


def _check_rank(rank: int, world: int) -> None:
    if not 0 <= rank < world:
        raise ArcmaskError(f"the rank is {rank}, but must lie between 0 and {world - 1}")
