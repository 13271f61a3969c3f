"""The writer of one split: a stream of tokens becomes rows, and rows become files.

No file stays open, and an incomplete row stays in memory. So the files and a small record of the writer's position are
enough to resume after a kill.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcmask.data.index import Shard, Split
from arcmask.errors import ArcmaskError
from arcmask.files import flush, hash_file


def token_dtype(vocab_size: int) -> str:
    """Return the smallest type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


class SplitWriter:
    """Append tokens to `NAME-00000.bin`, `NAME-00001.bin`, …, of `shard_rows` rows each, and count them."""

    def __init__(self, folder: Path, name: str, *, length: int, shard_rows: int, vocab_size: int) -> None:
        self.folder, self.name, self.length, self.shard_rows = folder, name, length, shard_rows
        self.dtype = np.dtype(token_dtype(vocab_size)).newbyteorder("<")
        self.frequencies = np.zeros(vocab_size, dtype=np.int64)
        self.documents = self.text_bytes = self.rows = 0
        self._carry = np.zeros(0, dtype=self.dtype)
        self._unflushed: set[Path] = set()

    def add(self, documents: list[NDArray[np.uint32]], text_bytes: int) -> None:
        """Append whole documents. `text_bytes` is the size of their text."""
        self.documents += len(documents)
        self.text_bytes += text_bytes
        stream = np.concatenate([self._carry, *(document.astype(self.dtype) for document in documents)])
        whole = stream.size // self.length * self.length
        self._carry = stream[whole:].copy()
        rows = stream[:whole].reshape(-1, self.length)
        while len(rows):
            room = self.shard_rows - self.rows % self.shard_rows
            self._append(rows[:room])
            rows = rows[room:]

    def _append(self, rows: NDArray[Any]) -> None:
        """Append rows that fit into the current shard."""
        path = self._path(self.rows // self.shard_rows)
        with path.open("ab") as file:
            file.write(rows.tobytes())
        self._unflushed.add(path)
        self.frequencies += np.bincount(rows.ravel(), minlength=self.frequencies.size)
        self.rows += len(rows)

    def _shards(self) -> dict[Path, int]:
        """Return the number of rows in each shard file."""
        starts = range(0, self.rows, self.shard_rows)
        return {self._path(i): min(self.shard_rows, self.rows - start) for i, start in enumerate(starts)}

    def _path(self, shard: int) -> Path:
        return self.folder / f"{self.name}-{shard:05d}.bin"

    def record(self) -> dict[str, Any]:
        """Flush the files to the disk and return the writer's position."""
        self._flush()
        return {
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "rows": self.rows,
            "carry": self._carry.tolist(),
            "frequencies": self.frequencies.tolist(),
        }

    def go_back_to(self, record: dict[str, Any]) -> None:
        """Return to a recorded position. Whatever was written after it is cut off."""
        self.documents, self.text_bytes, self.rows = record["documents"], record["text_bytes"], record["rows"]
        self._carry = np.asarray(record["carry"], dtype=self.dtype)
        self.frequencies = np.asarray(record["frequencies"], dtype=np.int64)
        shards = self._shards()
        for path in set(self.folder.glob(f"{self.name}-*.bin")) - set(shards):
            path.unlink()
        for path, rows in shards.items():
            size = rows * self.length * self.dtype.itemsize
            if not path.is_file() or path.stat().st_size < size:
                raise ArcmaskError(f"{str(path)!r} is shorter than its record says; remove {str(self.folder)!r}")
            os.truncate(path, size)

    def _flush(self) -> None:
        while self._unflushed:
            flush(self._unflushed.pop())

    def finish(self) -> Split:
        """Flush everything to the disk and return what was written. Tokens that fill no row are dropped."""
        self._flush()
        return Split(
            rows=self.rows,
            tokens=self.rows * self.length,
            dropped_tokens=self._carry.size,
            documents=self.documents,
            text_bytes=self.text_bytes,
            shards=tuple(
                Shard(name=path.name, rows=rows, sha256=hash_file(path).hexdigest())
                for path, rows in self._shards().items()
            ),
        )
