"""What the package needs of a model, and the precision that it runs in.

Sampling and diagnostics need a `Denoiser`, a protocol that any class with its five members meets. Training and saving
need a `Model`, which adds parameters, devices and files. Hidden states and logits are separate, so logits are computed
only for the positions that need them.
"""

import json
import os
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self, get_args, runtime_checkable

import torch
from torch import Tensor, nn
from transformers.utils import logging

from arcmask.errors import ArcmaskError, unknown_name
from arcmask.feedback import SoftMask
from arcmask.files import written_whole
from arcmask.ranks import local_rank
from arcmask.rows import Rows, maskable_of, tokens_of
from arcmask.settings import TrainingPrecision

FEEDBACK_FILE = "feedback.json"
# The files of a saved model; a later save into the same folder removes those that it does not write.
MODEL_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    FEEDBACK_FILE,
    "wrap.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.*",
)


@runtime_checkable
class Denoiser(Protocol):
    """A model that maps embeddings to hidden states and hidden states to raw logits.

    Shapes: B sequences, L positions, V vocabulary, D and H widths, M rows. If the logits are one `nn.Linear` of the
    rows, a denoiser may offer that layer as `linear_head`; the training loss then takes less time and memory. For rows
    of different lengths, `hidden` must have a second argument, `attention_mask=None`, which is then (B, L), True where
    a position is not padding.

    >>> import torch
    >>> import arcmask
    >>> class Bigram:
    ...     mask_id, max_length = 4, None
    ...     table = torch.eye(5)
    ...     def hidden(self, embeddings):
    ...         return embeddings
    ...     def logits(self, hidden_rows):
    ...         return hidden_rows @ torch.zeros(5, 5)
    >>> isinstance(Bigram(), arcmask.Denoiser)
    True
    """

    @property
    def mask_id(self) -> int:
        """The id of `[MASK]`, a row of the table."""

    @property
    def max_length(self) -> int | None:
        """The maximum number of positions, or None if there is no limit."""

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """The input embeddings (V, D)."""

    @abstractmethod
    def hidden(self, embeddings: Tensor) -> Tensor:
        """Return the hidden states (B, L, H) of embeddings (B, L, D)."""

    @abstractmethod
    def logits(self, hidden_rows: Tensor) -> Tensor:
        """Return the raw logits (M, V) of hidden rows (M, H). The mask's column is not removed."""


class Model(nn.Module, Denoiser):
    """A denoiser that can be trained and saved. `load` and `wrap` return one.

    It has `feedback` (a SoftMask, or None) and `tokenizer` (or None). Neither is a submodule: each has its own file,
    and the keys of the weights stay those of the released layout. The feedback moves with the model's device.
    """

    feedback: SoftMask | None = None
    tokenizer: Any = None
    mask_id: int = -1
    max_length: int | None = None

    @property
    def enclosing(self) -> tuple[int, int] | None:
        """The ids of [CLS] and [SEP] if the tokenizer has them. They are around every row, and never masked."""
        return getattr(self.tokenizer, "enclosing", None)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids that are never sampled, such as [PAD] and [UNK], if the tokenizer has [CLS] and [SEP]."""
        return getattr(self.tokenizer, "special_ids", ())

    def save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """Write the model, its feedback and its tokenizer. No file is ever half-written.

        `options` are those of transformers' `save_pretrained`.
        """
        with written_whole(Path(folder), replaces=MODEL_FILES) as scratch, without_bars():
            self.save_weights(scratch, **options)
            if self.feedback is not None:
                (scratch / FEEDBACK_FILE).write_text(json.dumps(self.feedback.settings(), indent=2) + "\n")
            if self.tokenizer is not None:
                self.tokenizer.save(scratch)

    @abstractmethod
    def hidden(self, embeddings: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, L, H) of embeddings (B, L, D).

        `attention_mask` (B, L) is True where a position is not padding.
        """

    @abstractmethod
    def save_weights(self, folder: Path, **options: Any) -> None:
        """Write the weights and the configuration into a folder."""

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The layers that repeat, which are compiled one by one; none if they are not known."""

    @abstractmethod
    def set_dropout(self, dropout: float) -> None:
        """Change the dropout of every layer, or raise if the model cannot."""

    @abstractmethod
    def set_checkpointing(self, is_on: bool) -> None:
        """Keep only the inputs of blocks, and run them again in the backward pass; raise if the model cannot."""

    def compile_blocks(self) -> None:
        """Apply torch.compile to each block in place; the keys of the weights stay the same."""
        for block in self.blocks:
            block.compile()

    def check_length(self, length: int) -> None:
        """Raise if a sequence is longer than the model allows."""
        if self.max_length is not None and length > self.max_length:
            raise ArcmaskError(f"a sequence has {length} positions, but the model takes at most {self.max_length}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("feedback", "tokenizer"):
            super().__setattr__(name, value)
            return
        object.__setattr__(self, name, value)
        if name == "feedback" and value is not None:
            value.to(self.table.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # .to(), .cuda() and .cpu() call this. The feedback follows the device, not the dtype: it stays in float32.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.feedback is not None:
            self.feedback.to(self.table.device)
        return self


def maskable(denoiser: Denoiser, rows: Rows, masked: Tensor) -> Tensor:
    """Return the masked positions (B, L) of rows (B, L) without [CLS], [SEP], padding and prompts."""
    enclosing, masked, tokens = getattr(denoiser, "enclosing", None), maskable_of(rows, masked), tokens_of(rows)
    if enclosing is None:
        return masked
    return masked & ~torch.isin(tokens, tokens.new_tensor(enclosing))


@contextmanager
def saved_by_any_process(model: Any) -> Iterator[None]:
    """Let transformers save a model in any process. By itself it does so in the first process of a group only."""
    model.should_save_on_this_rank = lambda is_main_process: is_main_process
    try:
        yield
    finally:
        del model.should_save_on_this_rank


@contextmanager
def without_bars() -> Iterator[None]:
    """Switch off the progress bars of transformers, which are not useful for one or two files."""
    were_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            logging.enable_progress_bar()


_device: torch.device | None = None  # that the user chose


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Let `best_device` return a device: cpu, cuda (the GPU of this process), or cuda:N."""
    global _device
    device = _own_gpu() if name == "cuda" else torch.device(name)
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        count = torch.cuda.device_count() or "no"
        raise ArcmaskError(f"the device is {name}, but torch finds {count} GPU{'' if count == 1 else 's'}")
    before, _device = _device, device
    try:
        yield
    finally:
        _device = before


def best_device() -> torch.device:
    """Return the GPU of this process (under torchrun, of its local rank), or the CPU; `on_device` overrides it."""
    if _device is not None:
        return _device
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return _own_gpu()


def _own_gpu() -> torch.device:
    """Return the GPU of this process. srun can show each process one GPU of its own."""
    return torch.device("cuda", local_rank() % max(1, torch.cuda.device_count()))


def has_fast_bfloat16(device: torch.device | str) -> bool:
    """Return whether the device multiplies bfloat16 matrices in hardware; elsewhere float32 is far faster."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        has_amx = torch.cpu._is_amx_tile_supported()
        return (has_amx or torch.cpu._is_avx512_bf16_supported()) and (not has_amx or _amx_runs())
    return False


@cache
def _amx_runs() -> bool:
    """Return whether AMX works. Some virtual machines report it, and kill the process that uses it."""
    code = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def autocast(precision: TrainingPrecision, device: torch.device | str) -> AbstractContextManager[None]:
    """Return the context to call a denoiser in; "auto" is bfloat16 if the hardware supports it, else float32."""
    enabled = uses_bfloat16(precision, device)
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=enabled)


def uses_bfloat16(precision: TrainingPrecision, device: torch.device | str) -> bool:
    """Return whether a precision means bfloat16 on a device."""
    if precision not in get_args(TrainingPrecision):
        raise unknown_name("precision", precision, get_args(TrainingPrecision))
    return precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16(device))
