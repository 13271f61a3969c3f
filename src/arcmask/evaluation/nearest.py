"""The edit distance between a sample and the nearest training row, which says whether a model recites.

The edits are insertions, deletions and substitutions of tokens. Most rows are ruled out by their pairs of neighbouring
tokens: an edit changes at most four of the counts of pairs, so a fourth of the differences is a lower bound.

Shapes: N rows, L tokens in a row.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arcmask.data import PreparedCorpus, Tokenizer, open_prepared
from arcmask.errors import ArcmaskError

_MOST_ROWS = 100_000
_BUCKETS = 1024  # of pairs of tokens; pairs that share one only loosen the bound
_CHANGED = 4  # counts of pairs that one edit changes, at most
_ROWS_AT_A_TIME = 128


def open_neighbours(folder: str) -> PreparedCorpus:
    """Open the training rows of a prepared folder; raise if samples cannot be compared with them."""
    corpus = open_prepared(folder)
    if not corpus.is_padded:
        raise ArcmaskError(
            f"nearest is {folder}, whose rows are pieces of a stream of text; prepare it with --pack none, so each "
            "document is a row"
        )
    if len(corpus) > _MOST_ROWS:
        raise ArcmaskError(
            f"nearest is {folder} with {len(corpus):,} training rows, but may have {_MOST_ROWS:,} at most"
        )
    return corpus


class Neighbours:
    """Training rows to compare samples with, without the tokens that enclose them.

    >>> from arcmask.evaluation import Neighbours
    >>> Neighbours([[5, 6, 7, 8], [5, 9]]).distance([5, 6, 8])
    1
    """

    def __init__(
        self, rows: Sequence[Sequence[int]], *, tokenizer: Tokenizer | None = None, source: str = "rows"
    ) -> None:
        self.source, self._tokenizer = source, tokenizer
        self._enclosing = set((tokenizer and tokenizer.enclosing) or ())
        bare = [self._bare(row) for row in rows]
        self._lengths = np.array([len(row) for row in bare])
        self._tokens = np.full((self._lengths.max(), len(bare)), -1, dtype=np.int32)  # (L, N): N is innermost
        for number, row in enumerate(bare):
            self._tokens[: len(row), number] = row
        self._pairs = np.stack([_pairs(row) for row in bare])

    @classmethod
    def open(cls, folder: str) -> "Neighbours":
        """Read the training rows of a prepared folder, which must have one document each."""
        corpus = open_neighbours(folder)
        return cls(corpus.rows(range(len(corpus))).tolist(), tokenizer=corpus.tokenizer(), source=folder)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return texts in the tokens of the rows."""
        assert self._tokenizer is not None
        return self._tokenizer.encode_batch(texts)

    def __len__(self) -> int:
        return len(self._lengths)

    def distance(self, tokens: Sequence[int]) -> int:
        """Return the edits between tokens and the nearest row."""
        bare = self._bare(tokens)
        bounds = np.abs(self._pairs - _pairs(bare)).sum(1) / _CHANGED
        order, best = np.argsort(bounds, kind="stable"), math.inf
        for start in range(0, len(order), _ROWS_AT_A_TIME):
            some = order[start : start + _ROWS_AT_A_TIME]
            if bounds[some[0]] >= best:
                break
            best = min(best, int(_edits(bare, self._tokens[:, some], self._lengths[some]).min()))
        return int(best)

    def _bare(self, tokens: Sequence[int]) -> list[int]:
        return [token for token in tokens if token not in self._enclosing]


def _pairs(tokens: Sequence[int]) -> NDArray[np.int16]:
    """Count the pairs of neighbouring tokens, by bucket."""
    ids = np.asarray(tokens, dtype=np.int64)
    return np.bincount((ids[:-1] * 31 + ids[1:]) % _BUCKETS, minlength=_BUCKETS).astype(np.int16)


def _edits(tokens: Sequence[int], rows: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edits between tokens and each of the rows (L, N), whose lengths are (N,): -> (N,)."""
    # Entry i is the distance between the tokens so far and the first i of a row, minus i. So an insertion is free.
    is_short = max(len(tokens), len(rows)) < 2**14
    table = np.zeros((len(rows) + 1, rows.shape[1]), dtype=np.int16 if is_short else np.int32)
    for token in tokens:
        following = table + 1
        np.minimum(following[1:], table[:-1] - (rows == token), out=following[1:])
        table = np.minimum.accumulate(following, axis=0)
    return table[lengths, np.arange(len(lengths))] + lengths
