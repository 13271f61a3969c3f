"""The settings of `arcmask inspect`."""

from dataclasses import dataclass
from pathlib import Path

from arcmask.errors import check_choice, check_range
from arcmask.settings import MAX_SEED

# Each diagnostic is a figure, its data and a sentence; they are shown in this order.
NAMES = ("norms", "angles", "training", "paths", "sphere", "confidence", "karcher", "accuracy", "cost")


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Which checkpoint to inspect, and on which text.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        data: The folder that `arcmask prepare` wrote with the model's tokenizer. Default: the run's own.
        run: The run whose metrics show angles over training. Default: the run that the checkpoint belongs to.
        out: The folder to write. Default: inspect/NAME, with the checkpoint's name.
        only: A comma-separated choice of norms,angles,training,paths,sphere,confidence,karcher,accuracy,cost; it is an
            error if one of them is not possible. Default: all that are possible.
        operators: Operators of your own to include, as FILE.py:FUNCTION.
        tokens: Tokens of text to use, rounded up to whole rows. At time t a fraction t of them is masked.
        seed: Seed of the rows and of the masks.
        mask_id: The mask's id, for a checkpoint that does not say.
    """

    checkpoint: str
    data: str | None = None
    run: str | None = None
    out: str | None = None
    only: str | None = None
    operators: tuple[str, ...] = ()
    tokens: int = 2048
    seed: int = 0
    mask_id: int | None = None

    def __post_init__(self) -> None:
        check_range(1, 10**7, self, "tokens")
        check_range(0, MAX_SEED, self, "seed", "mask_id")
        for name in self.names:
            check_choice("diagnostic", name, NAMES)

    @property
    def names(self) -> tuple[str, ...]:
        """The diagnostics to run."""
        return NAMES if self.only is None else tuple(name.strip() for name in self.only.split(","))

    @property
    def folder(self) -> Path:
        """The folder to write."""
        return Path("inspect", Path(self.checkpoint).resolve().name) if self.out is None else Path(self.out)
