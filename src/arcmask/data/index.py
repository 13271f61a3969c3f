"""What a prepared folder says of itself: the records of index.json, the file that is written last.

Knows counts, hashes and names; reads no tokens, and needs no torch.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, sha256

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
    """The rows of a split, and the text they came from.

    tokens = rows * length; dropped_tokens did not fill a last row. text_bytes is the UTF-8 length of the documents
    (in text8, of their text8 form with the spaces between them), so bits per byte are
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
    """Everything about a prepared corpus but its tokens. `settings` are those of the run, resolved."""

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
        """One hash over all: settings, counts, and the hashes of every file."""
        return sha256(json_bytes(asdict(self)))

    def to_bytes(self) -> bytes:
        return json_bytes({**asdict(self), "hash": self.hash})

    def describe(self) -> list[str]:
        """Lines for a person."""
        lines = [
            f"tokenizer {self.tokenizer}: {self.vocab_size} ids, mask {self.mask_id}; rows of {self.length} tokens"
        ]
        for name, split in self.splits.items():
            lines.append(
                f"{name}: {split.rows} rows, {split.tokens} tokens out of {split.documents} documents "
                f"({split.text_bytes / 1e6:.1f} MB of text); {split.dropped_tokens} tokens did not fill a last row"
            )
        return lines


def read_index(folder: str | Path) -> Index:
    """The index of a prepared folder."""
    folder = Path(folder)
    try:
        content = (folder / INDEX).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if partial_of(folder).is_dir():
            raise ArcmaskError(f"{str(folder)!r} is not finished; run the same `arcmask prepare` again") from None
        raise ArcmaskError(f"{str(folder)!r} is not a prepared corpus: it has no {INDEX}") from None
    try:
        fields = json.loads(content)
        version = fields["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArcmaskError(f"{str(folder / INDEX)!r} is damaged; prepare the corpus again") from error
    if version != FORMAT:
        raise ArcmaskError(f"{str(folder)!r} has the format {version}, but this version of arcmask reads {FORMAT}")
    recorded = fields.pop("hash")
    for name, split in fields["splits"].items():
        shards = tuple(Shard(**shard) for shard in split.pop("shards"))
        fields["splits"][name] = Split(**split, shards=shards)
    index = Index(**fields)
    if index.hash != recorded:
        raise ArcmaskError(f"{str(folder / INDEX)!r} was changed since it was written; prepare the corpus again")
    return index


def partial_of(folder: Path) -> Path:
    """Where a folder is made until it is complete."""
    return folder.with_name(folder.name + ".partial")
