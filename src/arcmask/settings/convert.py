"""The settings of `arcmask convert`."""

from dataclasses import dataclass
from typing import Literal

from arcmask.errors import check_range
from arcmask.settings import MAX_SEED


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """Which checkpoint to read, and what to write.

    Args:
        source: A folder, a run, a Lightning .ckpt or a hub id.
        target: The folder to write in the model's public layout, or a file whose name ends in .ckpt.
        weights: Which weights to take if the source has both: ema or raw.
        mask_id: The mask's id, for a source that does not say.
        dtype: The dtype of the written weights. Default: unchanged.
        bidirectional: Open a causal language model with full attention, as a denoiser.
        shift: Whether its outputs predict the next position. Default: as in the source; true for a causal model.
        mask_token: The mask of a causal model, a token that it has or a new one.
    """

    source: str
    target: str
    weights: Literal["ema", "raw"] = "ema"
    mask_id: int | None = None
    dtype: Literal["float32", "bfloat16"] | None = None
    bidirectional: bool = False
    shift: bool | None = None
    mask_token: str | None = None

    def __post_init__(self) -> None:
        check_range(0, MAX_SEED, self, "mask_id")
