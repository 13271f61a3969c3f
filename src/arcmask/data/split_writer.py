"""Write the rows of one split into shard files, and count them.

The writer keeps no file open and an incomplete row in memory, so the files and a small record of its position are
enough to resume.

A row of a stream is `length` ids. A row of a single document is its number of tokens, how many of them are a prompt,
and `length` ids, filled up with the padding's.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcmask.data.prepared import HEADER, Shard, Split
from arcmask.errors import ArcmaskError
from arcmask.files import flush, hash_file

_AT_A_TIME = 4096  # padded rows in memory


class SplitWriter:
    """Append documents to `NAME-00000.bin`, `NAME-00001.bin`, …, of `shard_rows` rows each.

    `enclosing` are two ids to put around each row; they are part of its length. With `pad_id` each document is a row,
    padded with that id and cut off at the row's end; without it, documents are joined and cut into rows.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        length: int,
        shard_rows: int,
        vocab_size: int,
        enclosing: tuple[int, int] | None = None,
        pad_id: int | None = None,
    ) -> None:
        self.folder, self.name, self.length, self.shard_rows = folder, name, length, shard_rows
        self._enclosing, self._pad_id = enclosing, pad_id
        self.columns = length if pad_id is None else length + HEADER
        largest = vocab_size if pad_id is None else max(vocab_size, length + 1)
        self.dtype = np.dtype("uint16" if largest <= 1 << 16 else "uint32").newbyteorder("<")
        self.frequencies = np.zeros(vocab_size, dtype=np.int64)
        self.documents = self.text_bytes = self.rows = self.tokens = self.cut = 0
        self._carry = np.zeros(0, dtype=self.dtype)
        self._unflushed: set[Path] = set()

    @property
    def room(self) -> int:
        """The number of tokens of text in a row."""
        return self.length - (0 if self._enclosing is None else 2)

    def add(self, documents: list[NDArray[np.uint32]], text_bytes: int, prompts: Sequence[int] | None = None) -> None:
        """Append whole documents. `text_bytes` is the size of their text; `prompts` are their first tokens, given."""
        self.documents += len(documents)
        self.text_bytes += text_bytes
        if self._pad_id is None:
            self._write(self._joined(documents))
            return
        for start in range(0, len(documents), _AT_A_TIME):
            part = slice(start, start + _AT_A_TIME)
            self._write(self._padded(documents[part], prompts[part] if prompts else None, self._pad_id))

    def _write(self, rows: NDArray[Any]) -> None:
        """Append rows, to a new shard when the current one is full."""
        while len(rows):
            room = self.shard_rows - self.rows % self.shard_rows
            self._append(rows[:room])
            rows = rows[room:]

    def _joined(self, documents: list[NDArray[np.uint32]]) -> NDArray[Any]:
        """Return the rows that the documents fill; what is left waits for the next ones."""
        stream = np.concatenate([self._carry, *(document.astype(self.dtype) for document in documents)])
        whole = stream.size // self.room * self.room
        self._carry = stream[whole:].copy()
        rows = stream[:whole].reshape(-1, self.room)
        if self._enclosing is None:
            return rows
        begin, end = np.asarray(self._enclosing, dtype=self.dtype)
        return np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (begin, end)))

    def _padded(self, documents: list[NDArray[np.uint32]], prompts: Sequence[int] | None, pad_id: int) -> NDArray[Any]:
        """Return a row for each document."""
        begin, end = ((), ()) if self._enclosing is None else ((self._enclosing[0],), (self._enclosing[1],))
        rows = np.full((len(documents), self.columns), pad_id, dtype=self.dtype)
        for row, document, prompt in zip(rows, documents, prompts or [0] * len(documents), strict=True):
            tokens = np.concatenate([begin, document[: self.room], end])
            self.cut += max(0, document.size - self.room)
            row[:HEADER] = tokens.size, prompt + len(begin) if prompt else 0
            row[HEADER : HEADER + tokens.size] = tokens
        return rows

    def _append(self, rows: NDArray[Any]) -> None:
        """Append rows that fit into the current shard."""
        path = self._path(self.rows // self.shard_rows)
        with path.open("ab") as file:
            file.write(rows.tobytes())
        self._unflushed.add(path)
        tokens = rows.ravel()
        counted = rows.size
        if self._pad_id is not None:
            tokens = rows[:, HEADER:][np.arange(self.length) < rows[:, :1]]
            counted = tokens.size - int(rows[:, 1].sum(dtype=np.int64))
        self.tokens += counted
        self.frequencies += np.bincount(tokens, minlength=self.frequencies.size)
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
            **({} if self._pad_id is None else {"tokens": self.tokens, "cut": self.cut}),
            "carry": self._carry.tolist(),
            "frequencies": self.frequencies.tolist(),
        }

    def go_back_to(self, record: dict[str, Any]) -> None:
        """Return to a recorded position. Whatever was written after it is cut off."""
        self.documents, self.text_bytes, self.rows = record["documents"], record["text_bytes"], record["rows"]
        self.tokens, self.cut = record.get("tokens", self.rows * self.length), record.get("cut", 0)
        self._carry = np.asarray(record["carry"], dtype=self.dtype)
        self.frequencies = np.asarray(record["frequencies"], dtype=np.int64)
        shards = self._shards()
        for path in set(self.folder.glob(f"{self.name}-*.bin")) - set(shards):
            path.unlink()
        for path, rows in shards.items():
            size = rows * self.columns * self.dtype.itemsize
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
            tokens=self.tokens,
            dropped_tokens=self.cut + self._carry.size,
            documents=self.documents,
            text_bytes=self.text_bytes,
            shards=tuple(
                Shard(name=path.name, rows=rows, sha256=hash_file(path).hexdigest())
                for path, rows in self._shards().items()
            ),
        )
