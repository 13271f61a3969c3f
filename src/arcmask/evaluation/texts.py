"""Samples and reference text, read from files: a prepared folder, JSON lines, lines of text, or a text a file.

Knows files, not scores. A line that cannot be read is named by file and number.
"""

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from arcmask.data import Tokenizer, open_prepared, read_index
from arcmask.data.index import INDEX
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import END
from arcmask.files import sha256

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
# A corpus's words are looked for in so many of its tokens; that is all of a small one, and plenty of a large one.
_TOKENS_FOR_WORDS = 20_000_000
_ROWS_AT_A_TIME = 8192


@dataclass(frozen=True)
class SampleSet:
    """Texts, and their tokens if the file has them."""

    source: str
    texts: list[str]
    token_lists: list[list[int]] | None
    skipped: list[str] = field(default_factory=list)  # lines that could not be read, each in a few words


def words_of(text: str) -> list[str]:
    """Runs of letters, with apostrophes inside, in lower case; end-of-text is none."""
    return _WORD.findall(text.replace(END, " ").casefold())


def read_samples(source: str, *, skip_bad_lines: bool = False, tokenizer: Tokenizer | None = None) -> SampleSet:
    """A set of samples. `tokenizer` is for lines that have tokens and no text."""
    path = Path(source)
    if not path.exists():
        raise ArcmaskError(f"there is no file or folder {source}")
    texts: list[str] = []
    token_lists: list[Any] = []
    skipped: list[str] = []
    for where, content in _pieces(path):
        try:
            text, tokens = _parse(content, path.suffix == ".jsonl", tokenizer)
        except ValueError as error:
            if not skip_bad_lines:
                raise ArcmaskError(f"{where} {error}") from error
            warnings.warn(f"{where} {error}; it is left out", stacklevel=2)
            skipped.append(f"{where} {error}")
            continue
        texts.append(text)
        token_lists.append(tokens)
    if not texts:
        raise ArcmaskError(f"{source} holds no samples")
    has_tokens = all(tokens is not None for tokens in token_lists)
    return SampleSet(source, texts, token_lists if has_tokens else None, skipped)


def _pieces(path: Path) -> Iterator[tuple[str, bytes]]:
    """Where each sample stands, and its bytes."""
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


def _parse(content: bytes, is_json: bool, tokenizer: Tokenizer | None) -> tuple[str, list[int] | None]:
    """The text and perhaps the tokens; a ValueError completes the sentence that begins with where it stood."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if not is_json:
        return text, None
    try:
        record = json.loads(text)
    except ValueError:
        raise ValueError("is not JSON") from None
    record = record if isinstance(record, dict) else {}
    tokens, written = record.get("tokens"), record.get("text")
    if tokens is not None and not (isinstance(tokens, list) and all(type(token) is int for token in tokens)):
        raise ValueError('has "tokens" that are not a list of numbers')
    if written is None and tokens is not None and tokenizer is not None:
        written = tokenizer.decode(tokens)
    if not isinstance(written, str):
        raise ValueError('has no "text"')
    return written, tokens


@dataclass(frozen=True)
class ReferenceWords:
    """The words that count as real, and where they come from."""

    words: frozenset[str]
    source: str


class Reference:
    """Real text: words from all of it, and texts to compare samples with."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.is_prepared = (Path(source) / INDEX).is_file()
        self._texts = None if self.is_prepared else read_samples(source).texts

    def tokenizer(self) -> Tokenizer | None:
        """A prepared folder's."""
        return open_prepared(self.source).tokenizer() if self.is_prepared else None

    def words(self) -> ReferenceWords:
        """Of a prepared folder: those of both splits, as far as the first 20 million tokens of each go."""
        found: set[str] = set()
        if self._texts is not None:
            for text in self._texts:
                found.update(words_of(text))
            return ReferenceWords(frozenset(found), self.source)
        splits = [name for name, split in read_index(self.source).splits.items() if split.rows]
        for split in splits:
            for text in self._stream(split):
                found.update(words_of(text))
        return ReferenceWords(frozenset(found), f"{self.source} ({' and '.join(splits)})")

    def texts(self, count: int, seed: int) -> list[str]:
        """So many of the texts, or all if there are fewer, drawn without repetition; held-out rows if prepared."""
        generator = np.random.default_rng(seed)
        if self._texts is not None:
            chosen = generator.permutation(len(self._texts))[:count]
            return [self._texts[place] for place in sorted(chosen)]
        corpus = open_prepared(self.source, "validation")
        tokenizer, chosen = corpus.tokenizer(), generator.permutation(len(corpus))[:count]
        return [tokenizer.decode(row) for row in corpus.rows(np.sort(chosen)).tolist()]

    def _stream(self, split: str) -> Iterator[str]:
        """A split's text, in pieces that end between words: the rows follow one another and cut words."""
        corpus = open_prepared(self.source, split)
        tokenizer, rest = corpus.tokenizer(), ""
        rows = min(len(corpus), max(1, _TOKENS_FOR_WORDS // corpus.length))
        for start in range(0, rows, _ROWS_AT_A_TIME):
            part = corpus.rows(np.arange(start, min(start + _ROWS_AT_A_TIME, rows)))
            text = rest + tokenizer.decode(part.flatten().tolist())
            cut = text.rfind(" ") + 1
            rest = text[cut:]
            yield text[:cut]
        # What is left may be the beginning of a word only.


def texts_hash(texts: list[str]) -> str:
    """One hash over a set: its texts in their order."""
    return sha256(json.dumps(texts).encode())
