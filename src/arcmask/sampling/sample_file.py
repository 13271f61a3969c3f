"""Files of samples: a .jsonl file that several processes can append to, and sets of samples that are read.

Lines are written under a lock. A line that a killed process left unfinished is removed, so that an interrupted command
can continue. Samples that the file has are not drawn again.

A set is read from JSON lines, lines of text, or a folder with one text per file. Errors name the file and the line.
"""

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arcmask.data import Tokenizer
from arcmask.errors import ArcmaskError
from arcmask.files import writing
from arcmask.run_folder import LOCK, locked

_EARLIER = {
    "band": [0.2, 0.8],
    "reuse": False,
    "stop_at_end": False,
}  # what samples were drawn with before these were settings


class SampleFile:
    """A .jsonl file of samples that share their settings. Other processes may write to it too.

    `prompt` returns the prompt of a sample, by its index, if each has its own.
    """

    def __init__(self, path: Path, settings: dict[str, Any], prompt: Callable[[int], str] | None = None) -> None:
        self.path, self.settings, self._prompt = path, settings, prompt
        self.indices: set[int] = set()  # of the samples that the file has
        self._bytes_read = 0
        self._lines_read = 0
        if path.exists():
            self.append([])

    def append(self, records: list[dict[str, Any]]) -> None:
        """Append the records whose index is not in the file."""
        with writing(self.path), locked(self.path.with_name(f".{self.path.name}{LOCK}")):
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                self._read_new_lines(handle)
                new = [record | self.settings for record in records if record["index"] not in self.indices]
                content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in new).encode()
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(handle)

    def _read_new_lines(self, handle: int) -> None:
        """Read the new lines, remove an unfinished one, and raise for lines with other settings."""
        content = os.pread(handle, os.fstat(handle).st_size - self._bytes_read, self._bytes_read)
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.ftruncate(handle, self._bytes_read + end)
        for line in content[:end].splitlines():
            self._lines_read += 1
            self.indices.add(self._check(line))
        self._bytes_read += end

    def _check(self, line: bytes) -> int:
        """Return the index of the sample in a line; raise if it has other settings."""
        try:
            record = json.loads(line)
            index = int(record["index"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArcmaskError(
                f"{self.path}, line {self._lines_read}, is not a sample of arcmask; give another file"
            ) from error
        own = {} if self._prompt is None else {"prompt": self._prompt(index)}
        for key, value in (self.settings | own).items():
            recorded = record.get(key, _EARLIER.get(key))
            if recorded != value:
                raise ArcmaskError(
                    f"{self.path} holds samples with {key} {recorded!r}, but now {key} is {value!r}; give another file"
                )
        return index


@dataclass(frozen=True)
class SampleSet:
    """A set of samples: texts, and their tokens if the file has them."""

    source: str
    texts: list[str]
    token_lists: list[list[int]] | None
    skipped: list[str] = field(default_factory=list)  # a description of each line that could not be read


def read_samples(
    source: str, *, skip_bad_lines: bool = False, tokenizer: Tokenizer | None = None, what: str = "samples"
) -> SampleSet:
    """Read a set of samples: a .jsonl file, a text file with one sample per line, or a folder with one per file.

    Lines with an `index` are put in its order, since several processes append them in any. `tokenizer` decodes
    lines that have tokens and no text. A bad line raises, or is left out with a warning. `what` names what is read.
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
        raise ArcmaskError(f"{source} holds no {what}")
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
        decoded = content.decode("utf-8").removeprefix("\ufeff")  # a byte order mark
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
