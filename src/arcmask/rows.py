"""Rows of text as token ids: a tensor if all have one length, or padded rows if they do not.

Shapes: N rows, L positions, D and H widths.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Rows of different lengths. Positions behind a row's length are padding: never seen, masked or counted.

    The first `prompts` tokens of a row are given: they are seen, but never masked or counted. Slices, `to` and `split`
    are those of a tensor. Numbers that do not fit each other are refused on the CPU; elsewhere, looking would wait for
    the device.

    >>> from arcmask.rows import PaddedRows
    >>> rows = PaddedRows.of([[5, 6, 7], [8]])
    >>> rows.tokens.tolist(), rows.attention_mask.tolist(), rows.tolist()
    ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]], [[5, 6, 7], [8]])
    """

    tokens: Tensor  # (N, L)
    lengths: Tensor  # (N,)
    prompts: Tensor  # (N,)

    def __post_init__(self) -> None:
        parts = {"tokens": self.tokens, "lengths": self.lengths, "prompts": self.prompts}
        for name, tensor in parts.items():
            if not isinstance(tensor, Tensor):
                raise ArcmaskError(f"{name} of padded rows are a {type(tensor).__name__}, but must be a tensor")
        count = self.tokens.shape[:1]
        if self.tokens.ndim != 2 or self.lengths.shape != count or self.prompts.shape != count:
            shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in parts.items())
            raise ArcmaskError(f"padded rows need tokens (N, L), lengths (N,) and prompts (N,), but have {shapes}")
        if self.lengths.is_cpu and self.prompts.is_cpu:
            self._check_numbers()

    def _check_numbers(self) -> None:
        """Raise unless 1 <= length <= L and 0 <= prompt < length in every row."""
        longest = self.tokens.shape[1]
        is_bad = (self.lengths < 1) | (self.lengths > longest) | (self.prompts < 0) | (self.prompts >= self.lengths)
        if bool(is_bad.any()):
            row = int(is_bad.long().argmax())
            raise ArcmaskError(
                f"row {row} of padded rows has {self.lengths[row]} tokens, {self.prompts[row]} of them a prompt, but "
                f"must have 1 to {longest} tokens, and fewer in its prompt"
            )

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], prompts: Sequence[int] | None = None, pad_id: int = 0) -> "PaddedRows":
        """Pad lists of ids to the longest one; the first `prompts` tokens of each are given."""
        if not rows or not all(len(row) for row in rows):
            raise ArcmaskError("padded rows need one row or more, and one token or more in each")
        longest = max(map(len, rows))
        return cls(
            tokens=torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows], dtype=torch.long),
            lengths=torch.tensor([len(row) for row in rows]),
            prompts=torch.zeros(len(rows), dtype=torch.long) if prompts is None else torch.as_tensor(prompts),
        )

    @property
    def attention_mask(self) -> Tensor:
        """(N, L) True where a position is not padding."""
        return self._positions < self.lengths.unsqueeze(1)

    @property
    def counted(self) -> Tensor:
        """(N, L) True where a position is neither padding nor part of a prompt."""
        return self.attention_mask & (self._positions >= self.prompts.unsqueeze(1))

    @property
    def _positions(self) -> Tensor:
        return torch.arange(self.tokens.shape[1], device=self.tokens.device)

    @property
    def shape(self) -> torch.Size:
        """(N, L), with padding."""
        return self.tokens.shape

    @property
    def ndim(self) -> int:
        """Two."""
        return self.tokens.ndim

    def numel(self) -> int:
        """Return the number of positions, with padding."""
        return self.tokens.numel()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Any) -> "PaddedRows":
        """Return some of the rows, given by a slice, a list or a tensor."""
        return PaddedRows(self.tokens[rows], self.lengths[rows], self.prompts[rows])

    def to(self, *target: Any, **options: Any) -> "PaddedRows":
        """Return the rows on a device."""
        return PaddedRows(*(tensor.to(*target, **options) for tensor in (self.tokens, self.lengths, self.prompts)))

    def split(self, sizes: int | list[int]) -> list["PaddedRows"]:
        """Return parts of so many rows."""
        parts = (tensor.split(sizes) for tensor in (self.tokens, self.lengths, self.prompts))
        return [PaddedRows(*part) for part in zip(*parts, strict=True)]

    def tolist(self) -> list[list[int]]:
        """Return the ids of each row, without padding."""
        pairs = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [row[:length] for row, length in pairs]

    def flatten(self) -> Tensor:
        """Return the ids of all rows (T,), without padding."""
        return self.tokens[self.attention_mask]


Rows = Tensor | PaddedRows
"""Clean rows (N, L)."""


def tokens_of(rows: Rows) -> Tensor:
    """Return the ids (N, L) of rows, padding included."""
    return rows.tokens if isinstance(rows, PaddedRows) else rows


def attention_mask_of(rows: Rows) -> Tensor | None:
    """Return where rows (N, L) are not padding; None if none of them is padded."""
    if not isinstance(rows, PaddedRows) or bool((rows.lengths == rows.shape[1]).all()):
        return None
    return rows.attention_mask


def counts_of(rows: Rows) -> Tensor:
    """Return how many tokens of each row are counted, (N,)."""
    if isinstance(rows, PaddedRows):
        return rows.lengths - rows.prompts
    return torch.full((len(rows),), rows.shape[1], dtype=torch.long, device=rows.device)


def trimmed(rows: Rows, masked: Tensor) -> tuple[Rows, Tensor]:
    """Return rows and their masked positions (N, L) without the columns that are padding in every row."""
    if not isinstance(rows, PaddedRows):
        return rows, masked
    longest = int(rows.lengths.max())
    return PaddedRows(rows.tokens[:, :longest], rows.lengths, rows.prompts), masked[:, :longest]


def check_padding(denoiser: Any, rows: str = "the rows") -> None:
    """Raise unless the `hidden` of a denoiser has the argument `attention_mask`. `rows` names the padded rows."""
    parameters = inspect.signature(denoiser.hidden).parameters.values()
    if not any(p.name == "attention_mask" or p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters):
        raise ArcmaskError(
            f"{rows} are padded, but hidden() of the denoiser {type(denoiser).__name__} takes no attention_mask; give "
            "rows of one length"
        )


def hidden_of(denoiser: Any, embeddings: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the hidden states (N, L, H) of a denoiser for embeddings (N, L, D), of which some may be padding."""
    if attention_mask is None:
        return denoiser.hidden(embeddings)
    check_padding(denoiser)
    return denoiser.hidden(embeddings, attention_mask=attention_mask)


def maskable_of(rows: Rows, masked: Tensor) -> Tensor:
    """Return the masked positions (N, L) without padding and prompts."""
    return masked & rows.counted if isinstance(rows, PaddedRows) else masked
