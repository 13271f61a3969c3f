"""An opened prepared corpus: rows of token ids out of memory-mapped files.

Opening reads the index and the sizes of the files, not their content. The order of rows is the loader's.

Shapes: L tokens in a row, V ids in the vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arcmask.data.index import FREQUENCIES, TOKENIZER, Index, Split, read_index
from arcmask.data.tokenizers import Tokenizer, open_tokenizer
from arcmask.errors import ArcmaskError, unknown_name


class PreparedCorpus:
    """One split of a prepared folder. `len()` is its number of rows."""

    def __init__(self, folder: Path, split: str, index: Index) -> None:
        self.folder = folder
        self.split = split
        self.index = index
        self._shards = [self._map(shard.name, shard.rows) for shard in self.record.shards]

    @property
    def record(self) -> Split:
        """The counts of this split: rows, tokens, documents, bytes of text."""
        return self.index.splits[self.split]

    @property
    def length(self) -> int:
        """The number of tokens in a row, L."""
        return self.index.length

    @property
    def mask_id(self) -> int:
        """The mask's id."""
        return self.index.mask_id

    @property
    def vocab_size(self) -> int:
        """The number of ids, V."""
        return self.index.vocab_size

    def __len__(self) -> int:
        return self.record.rows

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        # A copy in another process maps the files again; the pages are shared.
        return open_prepared, (str(self.folder), self.split)

    def rows(self, indices: Sequence[int] | NDArray[np.int64] | Tensor) -> Tensor:
        """Return the token ids of rows: indices (n,) -> (n, L)."""
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise ArcmaskError(f"rows run from 0 to {len(self) - 1}, not from {numbers.min()} to {numbers.max()}")
        tokens = np.empty((numbers.size, self.length), dtype=np.int64)
        for position, (shard, row) in enumerate(zip(*divmod(numbers, self.index.shard_rows), strict=True)):
            tokens[position] = self._shards[shard][row]
        return torch.from_numpy(tokens)

    @property
    def frequencies(self) -> Tensor:
        """The number of times that each id occurs in the train rows, (V,). Read from the disk at each access."""
        return torch.from_numpy(np.load(self.folder / FREQUENCIES))

    def tokenizer(self) -> Tokenizer:
        """Open the tokenizer that made the rows."""
        return open_tokenizer(self.folder / TOKENIZER)

    def check_fits(self, *, vocab_size: int, mask_id: int, max_length: int | None) -> None:
        """Raise unless a model with these numbers can read the rows."""
        name, where = self.index.tokenizer, f"the corpus in {str(self.folder)!r}"
        if self.vocab_size > vocab_size:
            raise ArcmaskError(f"{where} has {self.vocab_size} token ids ({name}), but the model knows {vocab_size}")
        if self.mask_id != mask_id:
            raise ArcmaskError(f"{where} has the mask id {self.mask_id} ({name}), but the model's is {mask_id}")
        if max_length is not None and self.length > max_length:
            raise ArcmaskError(f"{where} has rows of {self.length} tokens, but the model takes {max_length} at most")

    def _map(self, name: str, rows: int) -> NDArray[np.unsignedinteger]:
        path = self.folder / name
        dtype = np.dtype(self.index.dtype).newbyteorder("<")
        size = rows * self.length * dtype.itemsize
        if not path.is_file():
            raise ArcmaskError(f"{str(path)!r} is missing; prepare the corpus again")
        if (actual := path.stat().st_size) != size:
            raise ArcmaskError(f"{str(path)!r} has {actual} bytes where {size} are recorded; prepare the corpus again")
        return np.memmap(path, dtype=dtype, mode="r", shape=(rows, self.length))


def open_prepared(folder: str | Path, split: str = "train") -> PreparedCorpus:
    """Open a split, `train` or `validation`, of a folder that `arcmask prepare` made. No tokens are read."""
    index = read_index(folder)
    if split not in index.splits:
        raise unknown_name("split", split, index.splits)
    if index.splits[split].rows == 0:
        raise ArcmaskError(f"{str(folder)!r} has no {split} rows: it was prepared with holdout none")
    return PreparedCorpus(Path(folder), split, index)
