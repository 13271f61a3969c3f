"""Reference text: a prepared folder, or anything that samples can be; its words, and texts drawn from it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from arcmask.data import Tokenizer, open_prepared, read_index
from arcmask.data.prepared import INDEX
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import END
from arcmask.rows import PaddedRows, Rows
from arcmask.sampling.sample_file import read_samples

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_TOKENS_FOR_WORDS = 20_000_000  # tokens of a corpus whose words are collected, at most
_ROWS_AT_A_TIME = 8192


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters in lower case, apostrophes inside; end-of-text is not a word."""
    return _WORD.findall(text.replace(END, " ").casefold())


@dataclass(frozen=True)
class ReferenceWords:
    """The words that count as real, a description of their source, and the number of words in its longest text."""

    words: frozenset[str]
    source: str
    longest: int

    @classmethod
    def collect(cls, texts: Iterable[str], source: str) -> Self:
        """Collect the words of texts."""
        words, longest = set[str](), 0
        for text in texts:
            new = words_of(text)
            words.update(new)
            longest = max(longest, len(new))
        return cls(frozenset(words), source, longest)


def words_of_rows(rows: Rows, tokenizer: Tokenizer | None) -> ReferenceWords:
    """Collect the words of rows (N, L)."""
    if tokenizer is None:
        raise ArcmaskError("the model has no tokenizer, so the words of the rows are not known; give a quality")
    # Rows of one length are pieces of a stream and may cut words; padded rows are texts of their own.
    texts = (
        map(tokenizer.decode_row, rows.tolist())
        if isinstance(rows, PaddedRows)
        else [tokenizer.decode(rows.flatten().tolist())]
    )
    return ReferenceWords.collect(texts, f"the {len(rows)} rows")


class Reference:
    """Real text to compare samples with: a prepared folder, anything that `read_samples` reads, or texts in memory."""

    def __init__(self, source: str, texts: list[str] | None = None) -> None:
        self.source = source
        self.is_prepared = texts is None and (Path(source) / INDEX).is_file()
        self._texts = texts if self.is_prepared or texts is not None else read_samples(source).texts

    def tokenizer(self) -> Tokenizer | None:
        """Open the tokenizer of a prepared folder; None for other sources."""
        return open_prepared(self.source).tokenizer() if self.is_prepared else None

    def words(self) -> ReferenceWords:
        """Collect the words: of a prepared folder, those of both splits in the first 20 million tokens of each.

        The words of the last prepared folder are kept, since an experiment needs them to inspect and to score.
        """
        if self._texts is None:
            return _prepared_words(self.source, read_index(self.source).hash)
        return ReferenceWords.collect(self._texts, self.source)

    def texts(self, count: int, seed: int) -> list[str]:
        """Draw `count` texts without repetition, or all if there are fewer. A prepared folder gives held-out rows."""
        corpus = self._texts if self._texts is not None else open_prepared(self.source, "validation")
        numbers = np.sort(np.random.default_rng(seed).permutation(len(corpus))[:count])
        if isinstance(corpus, list):
            return [corpus[number] for number in numbers]
        tokenizer = corpus.tokenizer()
        return [tokenizer.decode_row(row) for row in corpus.rows(numbers).tolist()]


@lru_cache(maxsize=1)
def _prepared_words(folder: str, _hash: str) -> ReferenceWords:
    """Collect the words of a prepared folder; its hash changes with its rows."""
    splits = [name for name, split in read_index(folder).splits.items() if split.rows]
    texts = chain.from_iterable(_stream(folder, split) for split in splits)
    return ReferenceWords.collect(texts, f"{folder} ({' and '.join(splits)})")


def _stream(folder: str, split: str) -> Iterator[str]:
    """Yield a split's text in pieces that end between words. Rows follow one another and may cut words."""
    corpus = open_prepared(folder, split)
    tokenizer, rest = corpus.tokenizer(), ""
    ends = corpus.index.settings.get("row_form") == "enclosed"
    around = tokenizer.enclosing
    rows = min(len(corpus), max(1, _TOKENS_FOR_WORDS // corpus.length))
    for start in range(0, rows, _ROWS_AT_A_TIME):
        part = corpus.rows(np.arange(start, min(start + _ROWS_AT_A_TIME, rows)))
        if isinstance(part, PaddedRows):  # texts of their own
            yield from map(tokenizer.decode_row, part.tolist())
            continue
        ids = (part[:, 1:-1] if ends else part).flatten().tolist()  # the ends of an enclosed row are end-of-text
        text = rest + tokenizer.decode(ids if around is None else [token for token in ids if token not in around])
        cut = text.rfind(" ") + 1
        rest = text[cut:]
        yield text[:cut]  # the rest may be half a word
