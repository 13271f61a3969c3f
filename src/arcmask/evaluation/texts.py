"""Samples and reference text, read from files: a prepared folder, JSON lines, lines of text, or one text per file.

Errors name the file and the line.
"""

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from arcmask.data import Tokenizer, open_prepared, read_index
from arcmask.data.prepared import INDEX
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import END
from arcmask.rows import PaddedRows, Rows

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_TOKENS_FOR_WORDS = 20_000_000  # tokens of a corpus whose words are collected, at most
_ROWS_AT_A_TIME = 8192


@dataclass(frozen=True)
class SampleSet:
    """A set of samples: texts, and their tokens if the file has them."""

    source: str
    texts: list[str]
    token_lists: list[list[int]] | None
    skipped: list[str] = field(default_factory=list)  # a description of each line that could not be read


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters in lower case, apostrophes inside; end-of-text is not a word."""
    return _WORD.findall(text.replace(END, " ").casefold())


def read_samples(source: str, *, skip_bad_lines: bool = False, tokenizer: Tokenizer | None = None) -> SampleSet:
    """Read a set of samples: a .jsonl file, a text file with one sample per line, or a folder with one per file.

    Lines with an `index` are put in its order, since several processes append them in any. `tokenizer` decodes
    lines that have tokens and no text. A bad line raises, or is left out with a warning.
    """
    path = Path(source)
    if not path.exists():
        raise ArcmaskError(f"there is no file or folder {source}")
    samples: list[tuple[int | None, str, list[int] | None]] = []
    skipped: list[str] = []
    for where, content in _pieces(path):
        try:
            samples.append(_parse(content, path.suffix == ".jsonl", tokenizer))
        except ValueError as error:
            if not skip_bad_lines:
                raise ArcmaskError(f"{where} {error}") from error
            warnings.warn(f"{where} {error}; it is left out", stacklevel=2)
            skipped.append(f"{where} {error}")
    if not samples:
        raise ArcmaskError(f"{source} holds no samples")
    if all(index is not None for index, *_ in samples):
        samples.sort(key=lambda sample: sample[0] or 0)
    token_lists = [tokens for *_, tokens in samples if tokens is not None]
    has_tokens = len(token_lists) == len(samples)
    return SampleSet(source, [text for _, text, _ in samples], token_lists if has_tokens else None, skipped)


def _pieces(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the file and line of each sample, in words, and its bytes."""
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")):
            yield str(file), file.read_bytes()
        return
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        if path.suffix == ".jsonl" and not line.strip():
            continue
        yield f"{path}, line {number},", line.removesuffix(b"\r")


def _parse(content: bytes, is_json: bool, tokenizer: Tokenizer | None) -> tuple[int | None, str, list[int] | None]:
    """Return the index, the text and the tokens of a sample; None for what it does not have.

    A ValueError is the end of a sentence that names the line.
    """
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if not is_json:
        return None, decoded, None
    try:
        record = json.loads(decoded)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    record = record if isinstance(record, dict) else {}
    tokens, text = record.get("tokens"), record.get("text")
    if tokens is not None and not (isinstance(tokens, list) and all(map(_is_token, tokens))):
        raise ValueError('has "tokens" that are not a list of numbers')
    if text is None and tokens is not None and tokenizer is not None:
        text = tokenizer.decode(tokens)
    if not isinstance(text, str):
        raise ValueError('has no "text"')
    index = record.get("index")
    return index if _is_token(index) else None, text, tokens


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


@dataclass(frozen=True)
class ReferenceWords:
    """The words that count as real, and a description of their source."""

    words: frozenset[str]
    source: str


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
    return ReferenceWords(frozenset(word for text in texts for word in words_of(text)), f"{len(rows)} rows")


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
        return ReferenceWords(frozenset(word for text in self._texts for word in words_of(text)), self.source)

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
    words = frozenset(word for text in texts for word in words_of(text))
    return ReferenceWords(words, f"{folder} ({' and '.join(splits)})")


def _stream(folder: str, split: str) -> Iterator[str]:
    """Yield a split's text in pieces that end between words. Rows follow one another and may cut words."""
    corpus = open_prepared(folder, split)
    tokenizer, rest = corpus.tokenizer(), ""
    around = tokenizer.enclosing
    rows = min(len(corpus), max(1, _TOKENS_FOR_WORDS // corpus.length))
    for start in range(0, rows, _ROWS_AT_A_TIME):
        part = corpus.rows(np.arange(start, min(start + _ROWS_AT_A_TIME, rows)))
        if isinstance(part, PaddedRows):  # texts of their own
            yield from map(tokenizer.decode_row, part.tolist())
            continue
        ids = part.flatten().tolist()
        text = rest + tokenizer.decode(ids if around is None else [token for token in ids if token not in around])
        cut = text.rfind(" ") + 1
        rest = text[cut:]
        yield text[:cut]  # the rest may be half a word
