"""What the rest of the package asks of a model, and the precision it may run in.

`Denoiser` is a protocol: a class of one's own with these five members is one too. Hidden states and logits are apart,
so that whoever needs the logits of a few positions pays for those alone.
"""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from arcmask.errors import unknown_name

FEEDBACK_FILE = "feedback.json"
# What a saved model may consist of: a later save into the same folder leaves none of these behind.
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
Precision = Literal["auto", "float32", "bfloat16"]


@runtime_checkable
class Denoiser(Protocol):
    """Embeddings -> hidden states -> raw logits. Shapes: B sequences, L positions, V vocabulary, D and H widths.

    One whose logits are exactly one `nn.Linear` of the rows may name it `linear_head`: its loss then costs less.
    """

    @property
    def mask_id(self) -> int:
        """The id of `[MASK]`, a row of the table."""

    @property
    def max_length(self) -> int | None:
        """The longest sequence, or None if there is no limit."""

    @property
    def table(self) -> Tensor:
        """(V, D) input embeddings."""

    def hidden(self, embeddings: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, H)."""

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """(M, H) -> (M, V), only the rows that are asked for; the mask's column is not removed."""


class Companions:
    """What a loaded denoiser has beside its weights: `feedback` (a SoftMask, or None) and `tokenizer` (or None).

    Neither becomes a submodule: their state has files of its own, and the model's keys stay the released layout's.
    """

    feedback: Any = None
    tokenizer: Any = None

    def save_companions(self, folder: Path) -> None:
        """Write `feedback.json` and the tokenizer's files, as far as there are any."""
        if self.feedback is not None:
            (folder / FEEDBACK_FILE).write_text(json.dumps(self.feedback.settings(), indent=2) + "\n")
        if self.tokenizer is not None:
            self.tokenizer.save(folder)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("feedback", "tokenizer"):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


def best_device() -> torch.device:
    """This process's GPU, which under torchrun is the one of its local rank; without one, the processor."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def has_fast_bfloat16(device: torch.device | str) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; elsewhere that is far slower than float32."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def autocast(precision: Precision, device: torch.device | str) -> AbstractContextManager[None]:
    """The context to call a denoiser in: bfloat16 products, plain float32, or ("auto") bfloat16 where it is fast."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise unknown_name("precision", precision, ("auto", "float32", "bfloat16"))
    enabled = precision == "bfloat16" or (precision == "auto" and has_fast_bfloat16(device))
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=enabled)
