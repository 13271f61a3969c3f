"""The settings of `arcmask inspect`."""

from dataclasses import dataclass, field
from pathlib import Path

from arcmask.errors import check_choice, check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED

# Each diagnostic is a figure, its data and a sentence; they are shown in this order.
GENERATION = "generation"  # the only one that samples; it is run if it is asked for
NAMES = (
    "gain",
    GENERATION,
    "norms",
    "angles",
    "training",
    "paths",
    "sphere",
    "confidence",
    "karcher",
    "accuracy",
    "cost",
)
PREDICTIONS = ("angles", "paths", "sphere", "confidence", "karcher", "accuracy")  # those that share predictions


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Which checkpoint to inspect, and on which text.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        data: The folder that `arcmask prepare` wrote with the model's tokenizer. Default: the run's own.
        run: The run whose metrics show angles over training. Default: the run that the checkpoint belongs to.
        out: The folder to write. Default: inspect/NAME, with the checkpoint's name.
        only: The diagnostics to run: {names}. It is an error if one of them is
            not possible. Default: all that are possible, except generation.
        operators: The operators of gain and generation: names, or FILE.py:FUNCTION. Default: all.
        tokens: Tokens of text to use, rounded up to whole rows. At time t a fraction t of them is masked.
        gain_tokens: Tokens of text for gain, rounded up to whole rows.
        generate: Run generation too: sample with feedback and at lower temperatures, and compare the texts.
        samples: Samples of generation per operator and weight, and per temperature.
        steps: Denoising steps of generation.
        evaluator: The model whose loss is the quality of generated text. Default: none; the quality is the share of
            words that occur in the text.
        seed: Seed of the rows, of the masks and of the samples.
        mask_id: The mask's id, for a checkpoint that does not say.
    """

    checkpoint: str
    data: str | None = None
    run: str | None = None
    out: str | None = None
    only: tuple[str, ...] | None = None
    operators: tuple[str, ...] = ()
    tokens: int = 2048
    gain_tokens: int = 8192
    generate: bool = field(default=False, metadata={"flag": True})
    samples: int = 64
    steps: int = 32
    evaluator: str = "none"
    seed: int = 0
    mask_id: int | None = None

    def __post_init__(self) -> None:
        check_range(1, 10**7, self, "tokens", "gain_tokens")
        check_range(2, 10**6, self, "samples")
        check_range(1, MAX_LENGTH, self, "steps")
        check_range(0, MAX_SEED, self, "seed", "mask_id")
        for name in self.names:
            check_choice("diagnostic", name, NAMES)

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        needs = {
            "operators": ("gain", GENERATION),
            "tokens": PREDICTIONS,
            "gain_tokens": ("gain",),
            "generate": (GENERATION,),
            "samples": (GENERATION,),
            "steps": (GENERATION,),
            "evaluator": (GENERATION,),
            "run": ("training", "paths", "confidence"),
        }
        return {
            setting: f"it is for {' and '.join(names)} alone"
            for setting, names in needs.items()
            if set(names).isdisjoint(self.names)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The diagnostics to run."""
        if self.only is None:
            return tuple(name for name in NAMES if self.generate or name != GENERATION)
        return tuple(name.strip() for word in self.only for name in word.split(","))

    @property
    def folder(self) -> Path:
        """The folder to write."""
        return Path("inspect", Path(self.checkpoint).resolve().name) if self.out is None else Path(self.out)


InspectConfig.__doc__ = (InspectConfig.__doc__ or "").replace("{names}", ", ".join(NAMES))
