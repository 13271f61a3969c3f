"""Rows of token ids behind one interface, whether they are in a prepared folder or in memory.

Shapes: N rows, L tokens in a row, V ids in the vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arcmask.data.tokenizers import Tokenizer
from arcmask.errors import ArcmaskError
from arcmask.files import sha256
from arcmask.rows import PaddedRows, Rows, counts_of, tokens_of

Indices = Sequence[int] | NDArray[np.int64] | Tensor
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples modulo 2^64 lie far from each other


class RowForm:
    """What a model must know of rows to read them: their length, their ids, their mask and their tokenizer."""

    def __init__(
        self,
        *,
        source: str,
        length: int,
        vocab_size: int,
        mask_id: int,
        tokenizer_name: str,
        tokenizer: Tokenizer | None = None,
        is_padded: bool = False,
    ) -> None:
        self.source = source  # where the rows are from
        self.length, self.is_padded = length, is_padded  # L, and whether rows may be shorter
        self.vocab_size, self.mask_id, self.tokenizer_name = vocab_size, mask_id, tokenizer_name
        self._tokenizer = tokenizer

    def tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer that makes the rows; None if it is not known."""
        return self._tokenizer

    def check_fits(
        self, *, vocab_size: int, mask_id: int, max_length: int | None, tokenizer: Tokenizer | None = None
    ) -> None:
        """Raise unless a model with these numbers, and with this tokenizer if it has one, can read the rows."""
        name, where = self.tokenizer_name, f"the corpus in {self.source!r}"
        if self.vocab_size > vocab_size:
            raise ArcmaskError(f"{where} has {self.vocab_size} token ids ({name}), but the model knows {vocab_size}")
        if self.mask_id != mask_id:
            raise ArcmaskError(f"{where} has the mask id {self.mask_id} ({name}), but the model's is {mask_id}")
        if max_length is not None and self.length > max_length:
            raise ArcmaskError(f"{where} has rows of {self.length} tokens, but the model takes {max_length} at most")
        own = None if tokenizer is None else self.tokenizer()
        if tokenizer is not None and own is not None and not tokenizer.has_ids_of(own):
            raise ArcmaskError(
                f"{where} was made with another tokenizer ({name}) than the model's ({tokenizer.name}): their ids "
                "stand for different tokens"
            )


class RowCorpus(RowForm, ABC):
    """Clean rows of token ids, and what training, diagnostics and evaluation ask about them. `len()` is N."""

    def __init__(self, *, split: str, count: int, **form: Any) -> None:
        super().__init__(**form)
        self.split, self._count = split, count

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def rows(self, indices: Indices) -> Rows:
        """Return the token ids of rows: indices (n,) -> (n, L)."""

    def counts(self, indices: Indices) -> NDArray[np.int64]:
        """Return how many tokens of each row are counted: indices (n,) -> (n,)."""
        return np.full(len(np.asarray(indices)), self.length, dtype=np.int64)

    @property
    @abstractmethod
    def frequencies(self) -> Tensor:
        """The number of times that each id occurs in the train rows, (V,)."""

    @property
    @abstractmethod
    def bytes_per_token(self) -> float | None:
        """The bytes of text that a token stands for; None without a tokenizer."""

    @property
    @abstractmethod
    def held_out(self) -> "RowCorpus | None":
        """The held-out rows that belong to these, or None."""

    def spread(self, count: int | None = None, seed: int = 0) -> NDArray[np.int64]:
        """Return the numbers of `count` rows (default: all) that are spread evenly over the split.

        The rows of other seeds lie between those of seed 0, so that seeds share no rows if there are enough of them.
        """
        count = len(self) if count is None else min(count, len(self))
        shift = (seed * _GOLDEN % 2**64) * len(self) >> 64
        return (np.arange(count, dtype=np.int64) * len(self) + shift) // count


class TensorRows(RowCorpus):
    """Rows (N, L) in memory, of a model with this mask and tokenizer, and held-out rows if there are any.

    Without `mask_id`, the mask is the id after the largest of the rows. Lists of different lengths become `PaddedRows`.

    >>> import torch
    >>> from arcmask.data import TensorRows
    >>> rows = TensorRows(torch.arange(12).reshape(4, 3))
    >>> len(rows), rows.length, rows.mask_id, rows.rows([1])
    (4, 3, 12, tensor([[3, 4, 5]]))
    """

    def __init__(
        self, rows: Any, *, mask_id: int | None = None, tokenizer: Tokenizer | None = None, held_out: Any = None
    ) -> None:
        clean = as_rows(rows, 1 if mask_id == 0 else 0)
        tokens = tokens_of(clean)
        text = clean.flatten()
        if mask_id is None:
            mask_id = int(text.max()) + 1
        elif bool((text == mask_id).any()):
            raise ArcmaskError(f"rows are clean text, but they have the id of the mask, {mask_id}")
        is_padded = isinstance(clean, PaddedRows)
        super().__init__(
            source=f"{len(tokens)} rows of {tokens.shape[1]} tokens, sha256 {_hash(clean)[:16]}",
            split="rows",
            count=len(tokens),
            length=tokens.shape[1],
            vocab_size=1 + max(int(text.max()), mask_id),
            mask_id=mask_id,
            tokenizer_name="no tokenizer" if tokenizer is None else tokenizer.name,
            tokenizer=tokenizer,
            is_padded=is_padded,
        )
        self._rows, self._text = clean, text
        self._held_out = None if held_out is None else TensorRows(held_out, mask_id=mask_id, tokenizer=tokenizer)
        if self._held_out is not None:
            self.vocab_size = max(self.vocab_size, self._held_out.vocab_size)

    def rows(self, indices: Indices) -> Rows:
        """Return the token ids of rows: indices (n,) -> (n, L)."""
        return self._rows[torch.as_tensor(np.asarray(indices, dtype=np.int64))]

    def counts(self, indices: Indices) -> NDArray[np.int64]:
        """Return how many tokens of each row are counted: indices (n,) -> (n,)."""
        return counts_of(self.rows(indices)).numpy()

    @property
    def frequencies(self) -> Tensor:
        """The number of times that each id occurs, (V,)."""
        return torch.bincount(self._text, minlength=self.vocab_size)

    @property
    def bytes_per_token(self) -> float | None:
        """The bytes of text that a token stands for; None without a tokenizer."""
        if self._tokenizer is None:
            return None
        return len(self._tokenizer.decode(self._text.tolist()).encode()) / self._text.numel()

    @property
    def held_out(self) -> "TensorRows | None":
        """The held-out rows that were given, or None."""
        return self._held_out


def as_rows(rows: Any, pad_id: int = 0) -> Rows:
    """Return rows as a tensor (N, L) of ids on the CPU; lists of different lengths as padded rows."""
    if isinstance(rows, PaddedRows):
        tokens = _as_tokens(rows.tokens)
        return PaddedRows(tokens, *(_as_counts(name, getattr(rows, name)) for name in ("lengths", "prompts")))
    if isinstance(rows, list | tuple) and len({len(row) if hasattr(row, "__len__") else -1 for row in rows}) > 1:
        return PaddedRows.of([_as_tokens([row])[0].tolist() for row in rows], pad_id=pad_id)
    return _as_tokens(rows)


def _hash(rows: Rows) -> str:
    content = [tokens_of(rows), *([rows.lengths, rows.prompts] if isinstance(rows, PaddedRows) else [])]
    return sha256(b"".join(part.numpy().tobytes() for part in content))


def _as_counts(name: str, numbers: Tensor) -> Tensor:
    """Return the lengths or prompts (N,) of padded rows as whole numbers on the CPU."""
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool:
        kind = str(numbers.dtype).removeprefix("torch.")
        raise ArcmaskError(f"{name} of padded rows must be whole numbers, but they are of type {kind}")
    return numbers.long().cpu()


def _as_tokens(rows: Any) -> Tensor:
    """Return rows as a tensor (N, L) of ids on the CPU."""
    try:
        tokens = torch.as_tensor(rows)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArcmaskError(f"rows must be ids of shape (N, L), but they are a {type(rows).__name__}") from error
    if tokens.ndim != 2 or not tokens.numel() or tokens.dtype.is_floating_point or tokens.dtype == torch.bool:
        kind = str(tokens.dtype).removeprefix("torch.")
        raise ArcmaskError(f"rows must be ids of shape (N, L), but they are {tuple(tokens.shape)} of type {kind}")
    if int(tokens.min()) < 0:
        raise ArcmaskError(f"rows have the id {int(tokens.min())}, but ids run from 0 on")
    return tokens.long().cpu().contiguous()
