"""The settings of `arcmask inspect`. Imports nothing heavy: it is read for `--help`."""

from dataclasses import dataclass
from pathlib import Path

from arcmask.errors import ArcmaskError, unknown_name

# Each is a figure, its data, and a sentence; in the order in which they are told.
NAMES = ("norms", "angles", "training", "paths", "sphere", "confidence", "karcher", "accuracy", "cost")


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """What to look at, with which text.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        data: A folder that `arcmask prepare` made, with the model's tokenizer. By default the run's own.
        run: The run whose metrics show angles over training. By default the one that the checkpoint is of.
        out: The folder to write. By default inspect/NAME, with the checkpoint's name.
        only: Some of norms,angles,training,paths,sphere,confidence,karcher,accuracy,cost, and an error if they cannot
            be had. By default all that can.
        tokens: Tokens of text that are looked at, rounded up to whole rows; a share t of them is masked at each time t.
        seed: Of the rows that are looked at, and of what is masked in them.
        mask_id: The id of the mask, for a checkpoint that does not say.
    """

    checkpoint: str
    data: str | None = None
    run: str | None = None
    out: str | None = None
    only: str | None = None
    tokens: int = 2048
    seed: int = 0
    mask_id: int | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ArcmaskError(f"tokens is {self.tokens}, but must be 1 or more")
        if self.seed < 0:
            raise ArcmaskError(f"seed is {self.seed}, but must be 0 or more")
        for name in self.names:
            if name not in NAMES:
                raise unknown_name("diagnostic", name, NAMES)

    @property
    def names(self) -> tuple[str, ...]:
        """The diagnostics that are wanted."""
        return NAMES if self.only is None else tuple(name.strip() for name in self.only.split(","))

    @property
    def folder(self) -> Path:
        """Where to write."""
        return Path("inspect", Path(self.checkpoint).resolve().name) if self.out is None else Path(self.out)
