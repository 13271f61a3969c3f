"""The index of a prepared folder: the records of index.json, the file that is written last.

It has counts, hashes and names. It reads no tokens and needs no torch.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, sha256
from arcmask.run_folder import read_settings

FORMAT = 1
INDEX, TOKENIZER, FREQUENCIES = "index.json", "tokenizer", "frequencies.npy"
SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of rows."""

    name: str
    rows: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows of a split and the text they came from.

    tokens = rows * length. dropped_tokens is the number of tokens that did not fill a last row. text_bytes is the UTF-8
    length of the documents (in text8, of their text8 form with the spaces between them), so bits per byte are
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
    """Everything about a prepared corpus except its tokens. `settings` are those of `prepare`, defaults filled in."""

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

    @property
    def hash(self) -> str:
        """One hash over the settings, the counts, and the hashes of all files."""
        return sha256(json_bytes(asdict(self)))

    def to_bytes(self) -> bytes:
        """Return the content of index.json."""
        return json_bytes({**asdict(self), "hash": self.hash})

    def describe(self) -> list[str]:
        """Return lines of text that summarise the corpus."""
        return [
            f"tokenizer {self.tokenizer}: {self.vocab_size} ids, mask {self.mask_id}; rows of {self.length} tokens"
        ] + [
            f"{name}: {split.rows} rows, {split.tokens} tokens from {split.documents} documents "
            f"({split.text_bytes / 1e6:.1f} MB of text); {split.dropped_tokens} tokens did not fill a last row"
            for name, split in self.splits.items()
        ]


def read_index(folder: str | Path) -> Index:
    """Read the index of a prepared folder and check its hash."""
    path = Path(folder) / INDEX
    if not path.is_file():
        if partial_of(path.parent).is_dir():
            raise ArcmaskError(f"{str(folder)!r} is not finished; run the same `arcmask prepare` again")
        raise ArcmaskError(f"{str(folder)!r} is not a prepared corpus: it has no {INDEX}")
    try:
        fields = read_settings(path)
        version, recorded = fields["format"], fields.pop("hash")
    except (ArcmaskError, KeyError) as error:
        raise ArcmaskError(f"{str(path)!r} is damaged; prepare the corpus again") from error
    if version != FORMAT:
        raise ArcmaskError(f"{str(folder)!r} has the format {version}, but this version of arcmask reads {FORMAT}")
    for split in fields["splits"].values():
        split["shards"] = tuple(Shard(**shard) for shard in split["shards"])
    index = Index(**fields | {"splits": {name: Split(**split) for name, split in fields["splits"].items()}})
    if index.hash != recorded:
        raise ArcmaskError(f"{str(path)!r} was changed since it was written; prepare the corpus again")
    return index


def partial_of(folder: Path) -> Path:
    """Return the folder in which a prepared folder is made until it is complete."""
    return folder.with_name(folder.name + ".partial")
