"""A prepared corpus: its index, its rows of token ids, and batches of them in a fixed order.

`index.json`, the file that is written last, records counts, hashes and names. Rows come out of memory-mapped files;
opening a corpus reads the index, the sizes of the files, and a few pages of each. `verify` reads all of them.

Batches form one stream, epoch after epoch, and each epoch is a permutation of all rows. Batch s is the s-th piece of
the stream, so a batch may span two epochs. Within an epoch no row is left out or repeated. The order depends on the
seed and the step alone, so there is no state to save.

Shapes: L tokens in a row, V ids in the vocabulary.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arcmask.data.row_corpus import Indices, RowCorpus
from arcmask.data.tokenizers import Tokenizer, open_tokenizer
from arcmask.errors import ArcmaskError, unknown_name
from arcmask.files import check_hash, json_bytes, sampled_hash, sha256
from arcmask.rows import PaddedRows, Rows
from arcmask.run_folder import interpreting, read_settings

STREAM, PADDED = 1, 2  # formats: rows of ids, and rows of one document each, with their lengths
HEADER = 2  # numbers before the ids of a padded row: its tokens, and how many of them are a prompt
INDEX, TOKENIZER, FREQUENCIES = "index.json", "tokenizer", "frequencies.npy"
SPLITS = ("train", "validation")
_NOT_HASHED = ("sampled", "source")
_ADVICE = "prepare the corpus again"
_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of rows."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows of a split and the text they came from.

    tokens is rows * length, or in padded rows the number of tokens without padding and prompts. dropped_tokens is the
    number of tokens that did not fill a last row, or that were cut off. text_bytes is the UTF-8 length of the documents
    without prompts (in text8, of their text8 form with the spaces between them), so bits per byte are
    nats_per_token / ln 2 * (tokens + dropped_tokens) / text_bytes.
    """

    rows: int
    tokens: int
    dropped_tokens: int
    documents: int
    text_bytes: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class Index:
    """Everything about a prepared corpus except its tokens. `settings` are those of `prepare`, defaults filled in.

    `sampled` has the hash of a few pages of each shard, and `source` says what the corpus's files were. The hash does
    not cover them, and folders of earlier versions have neither. `pad_id` fills up rows of one document each; a folder
    of streams has none.
    """

    format: int
    settings: dict[str, Any]
    tokenizer: str
    tokenizer_files: dict[str, str]
    vocab_size: int
    mask_id: int
    end_id: int | None
    length: int
    dtype: str
    shard_rows: int
    splits: dict[str, Split]
    frequencies_sha256: str
    sampled: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    pad_id: int | None = None

    @property
    def hash(self) -> str:
        """One hash over the settings, the counts, and the hashes of all files."""
        return _hash(self._fields)

    @property
    def is_padded(self) -> bool:
        """Whether each row is one document, padded."""
        return self.pad_id is not None

    @property
    def columns(self) -> int:
        """The numbers of a row in the files."""
        return self.length + (HEADER if self.is_padded else 0)

    @property
    def _fields(self) -> dict[str, Any]:
        """The content of index.json without its hash; folders of streams are written as earlier versions did."""
        return {name: value for name, value in asdict(self).items() if name != "pad_id" or value is not None}

    def to_bytes(self) -> bytes:
        """Return the content of index.json."""
        return json_bytes({**self._fields, "hash": self.hash})

    def describe(self) -> list[str]:
        """Return lines of text that summarise the corpus."""
        form = f"rows of {'one document and up to ' if self.is_padded else ''}{self.length} tokens"
        form += f", {self.settings.get('row_form', 'stream')}"
        lost = "were cut off" if self.is_padded else "did not fill a last row"
        return [f"tokenizer {self.tokenizer}: {self.vocab_size} ids, mask {self.mask_id}; {form}"] + [
            f"{name}: {split.rows} rows, {split.tokens} tokens from {split.documents} documents "
            f"({split.text_bytes / 1e6:.1f} MB of text); {split.dropped_tokens} tokens {lost}"
            for name, split in self.splits.items()
        ]


def read_index(folder: str | Path) -> Index:
    """Read the index of a prepared folder and check its hash."""
    path = Path(folder) / INDEX
    if not path.is_file():
        if partial_of(path.parent).is_dir():
            raise ArcmaskError(f"{str(folder)!r} is not finished; run the same `arcmask prepare` again")
        advice = f"prepare it with: arcmask prepare {folder} FOLDER" if path.parent.is_file() else f"it has no {INDEX}"
        if not path.parent.exists():
            advice = f"it does not exist; make it with: arcmask prepare CORPUS {folder}"
        raise ArcmaskError(f"{str(folder)!r} is not a prepared corpus: {advice}")
    try:
        fields = read_settings(path)
        version, recorded = fields["format"], fields.pop("hash")
    except (ArcmaskError, KeyError) as error:
        raise ArcmaskError(f"{str(path)!r} is damaged; {_ADVICE}") from error
    if version not in (STREAM, PADDED):
        known = f"{STREAM} and {PADDED}"
        raise ArcmaskError(f"{str(folder)!r} has the format {version}, but this version of arcmask reads {known}")
    if _hash(fields) != recorded or not all(isinstance(fields.get(name, {}), dict) for name in _NOT_HASHED):
        raise ArcmaskError(f"{str(path)!r} was changed since it was written; {_ADVICE}")
    with interpreting(path, "an index"):
        for split in fields["splits"].values():
            split["shards"] = tuple(Shard(**shard) for shard in split["shards"])
        return Index(**fields | {"splits": {name: Split(**split) for name, split in fields["splits"].items()}})


def _hash(fields: dict[str, Any]) -> str:
    return sha256(json_bytes({name: value for name, value in fields.items() if name not in _NOT_HASHED}))


def verify(folder: str | Path) -> int:
    """Compare every file of a prepared folder with its recorded SHA-256, and return the number of files."""
    index = read_index(folder)
    hashes = {shard.name: shard.sha256 for split in index.splits.values() for shard in split.shards}
    hashes |= {FREQUENCIES: index.frequencies_sha256}
    hashes |= {f"{TOKENIZER}/{name}": digest for name, digest in index.tokenizer_files.items()}
    for name, digest in hashes.items():
        check_hash(Path(folder) / name, digest, _ADVICE)
    return len(hashes)


@cache
def _check_sample(path: Path, _time: int, expected: str) -> None:
    """Raise unless a few pages of a file are as recorded; once per process, and again if the file changes."""
    if sampled_hash(path) != expected:
        raise ArcmaskError(f"{path} was changed since it was written; {_ADVICE}")


def partial_of(folder: Path) -> Path:
    """Return the folder in which a prepared folder is made until it is complete."""
    folder = folder.absolute()
    return folder.with_name(folder.name + ".partial")


class PreparedCorpus(RowCorpus):
    """One split of a prepared folder. `len()` is its number of rows."""

    def __init__(self, folder: Path, split: str, index: Index) -> None:
        super().__init__(
            source=str(folder),
            split=split,
            count=index.splits[split].rows,
            length=index.length,
            vocab_size=index.vocab_size,
            mask_id=index.mask_id,
            tokenizer_name=index.tokenizer,
            is_padded=index.is_padded,
        )
        self.folder = folder
        self.index = index
        starts = range(0, self.record.rows, index.shard_rows)
        if [shard.rows for shard in self.record.shards] != [min(index.shard_rows, len(self) - i) for i in starts]:
            raise ArcmaskError(f"the shards of {str(folder)!r} do not add up to its rows; {_ADVICE}")
        self._shards = [self._map(shard.name, shard.rows) for shard in self.record.shards]

    @property
    def record(self) -> Split:
        """The counts of this split: rows, tokens, documents, bytes of text."""
        return self.index.splits[self.split]

    @property
    def bytes_per_token(self) -> float:
        """The bytes of text that a token stands for."""
        return self.record.text_bytes / (self.record.tokens + self.record.dropped_tokens)

    @property
    def held_out(self) -> "PreparedCorpus | None":
        """The validation split of the folder; None if it was prepared with holdout none."""
        return open_prepared(self.folder, "validation") if self.index.splits["validation"].rows else None

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        # A copy in another process maps the files again; the pages are shared.
        return open_prepared, (str(self.folder), self.split)

    def rows(self, indices: Indices) -> Rows:
        """Return the token ids of rows: indices (n,) -> (n, L). Rows of one document each are `PaddedRows`."""
        numbers, values = self._read(indices, slice(None))
        header, tokens = values[:, : self.index.columns - self.length], values[:, self.index.columns - self.length :]
        largest = tokens.max(1, initial=0)
        self._check(
            numbers, largest >= self.vocab_size, lambda row: f"the token id {largest[row]} of {self.vocab_size}"
        )
        if not self.index.is_padded:
            return torch.from_numpy(tokens)
        lengths, prompts = header.T
        is_bad = (lengths < 1) | (lengths > self.length) | (prompts >= lengths)
        self._check(numbers, is_bad, lambda row: f"{lengths[row]} tokens, {prompts[row]} of them a prompt")
        return PaddedRows(*map(torch.from_numpy, (tokens.copy(), lengths.copy(), prompts.copy())))

    def counts(self, indices: Indices) -> NDArray[np.int64]:
        """Return how many tokens of each row are counted: neither padding nor part of a prompt."""
        if not self.index.is_padded:
            return super().counts(indices)
        _, header = self._read(indices, slice(HEADER))
        return header[:, 0] - header[:, 1]

    def _read(self, indices: Indices, columns: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of rows (n,), and some columns of what the files hold for them."""
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise ArcmaskError(f"rows run from 0 to {len(self) - 1}, not from {numbers.min()} to {numbers.max()}")
        values = np.empty((numbers.size, len(range(self.index.columns)[columns])), dtype=np.int64)
        for position, (shard, row) in enumerate(zip(*divmod(numbers, self.index.shard_rows), strict=True)):
            values[position] = self._shards[shard][row, columns]
        return numbers, values

    def _check(self, numbers: NDArray[np.int64], is_bad: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """Raise if one of the rows is bad."""
        if is_bad.any():
            position = int(is_bad.argmax())
            shard, row = divmod(int(numbers[position]), self.index.shard_rows)
            path = self.folder / self.record.shards[shard].name
            raise ArcmaskError(f"{path}, row {row}, has {describe(position)}; {_ADVICE}")

    @property
    def frequencies(self) -> Tensor:
        """The number of times that each id occurs in the train rows, (V,). Read from the disk at each access."""
        check_hash(self.folder / FREQUENCIES, self.index.frequencies_sha256, _ADVICE)
        return torch.from_numpy(np.load(self.folder / FREQUENCIES))

    def tokenizer(self) -> Tokenizer:
        """Open the tokenizer that made the rows."""
        for name, digest in self.index.tokenizer_files.items():
            check_hash(self.folder / TOKENIZER / name, digest, _ADVICE)
        return open_tokenizer(self.folder / TOKENIZER)

    def _map(self, name: str, rows: int) -> NDArray[np.unsignedinteger]:
        path = self.folder / name
        dtype = np.dtype(self.index.dtype).newbyteorder("<")
        size = rows * self.index.columns * dtype.itemsize
        if not path.is_file():
            raise ArcmaskError(f"{str(path)!r} is missing; {_ADVICE}")
        if (actual := path.stat().st_size) != size:
            raise ArcmaskError(f"{str(path)!r} has {actual} bytes where {size} are recorded; {_ADVICE}")
        if name in self.index.sampled:
            _check_sample(path, path.stat().st_mtime_ns, self.index.sampled[name])
        return np.memmap(path, dtype=dtype, mode="r", shape=(rows, self.index.columns))


def is_prepared(folder: str | Path) -> bool:
    """Return whether a folder is one that `arcmask prepare` has finished."""
    return (Path(folder) / INDEX).is_file()


def open_prepared(folder: str | Path, split: str = "train") -> PreparedCorpus:
    """Open a split, `train` or `validation`, of a folder that `arcmask prepare` made. No tokens are read."""
    index = read_index(folder)
    if split not in index.splits:
        raise unknown_name("split", split, index.splits)
    if index.splits[split].rows == 0:
        raise ArcmaskError(f"{str(folder)!r} has no {split} rows: it was prepared with holdout none")
    with interpreting(Path(folder) / INDEX, "an index"):
        return PreparedCorpus(Path(folder), split, index)


class Batches:
    """Training batches. `batch_size` is the global batch size; each of `world` ranks gets every world-th row."""

    def __init__(self, corpus: RowCorpus, *, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size < 1:
            raise ArcmaskError(f"the batch size is {batch_size}, but must be at least 1")
        if not 0 <= rank < world:
            raise ArcmaskError(f"the rank is {rank}, but must lie between 0 and {world - 1}")
        if batch_size % world:
            raise ArcmaskError(f"the batch size {batch_size} cannot be shared equally by {world} processes")
        self.corpus, self.batch_size, self.seed, self.rank, self.world = corpus, batch_size, seed, rank, world

    def batch(self, step: int) -> Rows:
        """Return this rank's rows of a step, counted from 0: (batch_size / world, L)."""
        return self.corpus.rows(self.indices(step))

    def tokens(self, step: int) -> int:
        """Return how many tokens of the global batch of a step are counted."""
        return int(self.corpus.counts(self._global_indices(step)).sum())

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of this rank's rows of a step: (batch_size / world,)."""
        return self._global_indices(step)[interleaved(self.rank, self.world)]

    def _global_indices(self, step: int) -> NDArray[np.int64]:
        positions = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, offsets = np.divmod(positions, len(self.corpus))
        return shuffled(offsets, len(self.corpus), self.seed, epochs)


def interleaved(part: int, parts: int) -> slice:
    """Return one of several equal shares of the rows of a batch: every parts-th row.

    Ranks and micro-batches take such shares. The times of a batch rise with the row, so consecutive rows would give one
    share few masked positions and another many.
    """
    return slice(part, None, parts)


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
