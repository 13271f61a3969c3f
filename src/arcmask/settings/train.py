"""The settings of a training run."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED, TrainingPrecision
from arcmask.settings.cards import CARDS, check_card
from arcmask.settings.operators import OPERATOR_CHOICES

Auto = Literal["auto"]
AUTO: Auto = "auto"
COMPUTED = ("centre", "steepness", "learning_rate", "warm_up", "save_every", "validate_every")  # what may be "auto"
FITTED = {"centre": AUTO, "steepness": AUTO}  # what a recipe sets for its own start alone
# Which settings may differ when a run is resumed. Every setting stands here once.
ON_RESUME: dict[str, tuple[str, ...]] = {
    # They would change the result.
    "never": (
        *("data", "init", "operator", "top_k", "karcher_steps", "fixed_weight", "scale", "centre", "steepness"),
        *("gate_probability", "band", "band_reading", "batch_size", "learning_rate", "confidence_learning_rate"),
        *("warm_up", "curve", "weight_decay", "beta2", "clip", "ema", "dropout", "freeze_backbone", "precision"),
        *("seed", "validation_rows"),
    ),
    # More steps continue a run whose learning rate is constant after the warm-up.
    "larger": ("steps",),
    # The result is equal up to rounding, if there is no dropout. The number of ranks is of this kind too.
    "without dropout": ("micro_batch", "checkpoint_blocks", "compile_blocks"),
    # The result is the same.
    "always": ("save_every", "keep", "validate_every", "tracker"),
}
_LEARNED = ("scale", "centre", "steepness", "confidence_learning_rate")  # settings of the learned weight
_LEARNING_RATES = {"new": 1e-3, "continued": 1e-4}
_POSITIVE = ("learning_rate", "confidence_learning_rate", "clip")
_FRACTIONS = ("ema", "beta2", "dropout")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All settings that a training run depends on.

    What is "auto" is computed once, when the run starts, and stored in its config.yaml as a number.

    Args:
        data: The folder that `arcmask prepare` wrote.
        init: The checkpoint to start from, or new:SIZE for a new model (nano, tiny, mini, small, medium).
        operator: The feedback operator: {operators}.
        top_k: Number of candidates that are fed back.
        karcher_steps: Karcher steps of the Fréchet mean.
        fixed_weight: A constant weight in place of the learned one.
        scale: Initial scale of the learned weight.
        centre: Initial centre of the learned weight; auto for a mean weight of 0.135 in the model that is trained.
        steepness: Initial steepness of the learned weight; auto for 4 / (interquartile range of the model's entropies).
        gate_probability: Probability that a step uses feedback.
        band: The interval of times t in which feedback may be used.
        band_reading: How the band is applied: batch-mean (the paper's appendix) or draw (its main text).
        steps: Optimiser steps.
        batch_size: Sequences per step, over all ranks.
        micro_batch: Sequences per rank and forward pass.
        learning_rate: Learning rate of the backbone; auto for 1e-3 in a new model and 1e-4 in any other.
        confidence_learning_rate: Learning rate of the three confidence scalars.
        warm_up: Steps of linear warm-up; auto for 5 % of the steps.
        curve: Learning-rate curve after the warm-up: constant, or cosine down to zero.
        weight_decay: Weight decay of AdamW.
        beta2: Second beta of AdamW.
        clip: Maximum gradient norm.
        ema: Decay of the averaged weights, which are validated and saved.
        dropout: Dropout, in place of the model's own.
        freeze_backbone: Train only the three confidence scalars.
        checkpoint_blocks: Recompute activations in the backward pass to save memory.
        compile_blocks: Compile each block with torch.compile.
        precision: auto, float32, bfloat16 or float64. Weights are saved in float32. With float64 they are trained in
            float64, so that they do not depend on the number of ranks.
        seed: Seed of data order, times, masks, gates and dropout.
        save_every: Steps between checkpoints; auto for 10 % of the steps, 1,000 at most.
        keep: Number of checkpoints to keep.
        validate_every: Steps between validations; 0 for none; auto as for checkpoints, or 0 without held-out rows.
        validation_rows: Rows per validation.
        tracker: tensorboard, wandb or none.
    """

    data: str
    init: str
    operator: str = "spherical"
    top_k: int = 3
    karcher_steps: int = 3
    fixed_weight: float | None = None
    scale: float = 0.5
    centre: float | Auto = AUTO
    steepness: float | Auto = AUTO
    gate_probability: float = 0.5
    band: tuple[float, float] = (0.2, 0.8)
    band_reading: Literal["batch-mean", "draw"] = "batch-mean"
    steps: int = 1000
    batch_size: int = 32
    micro_batch: int = 32
    learning_rate: float | Auto = AUTO
    confidence_learning_rate: float = 1e-2
    warm_up: int | Auto = AUTO
    curve: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    beta2: float = 0.999
    clip: float = 1.0
    ema: float = 0.9999
    dropout: float | None = None
    freeze_backbone: bool = False
    checkpoint_blocks: bool = False
    compile_blocks: bool = False
    precision: TrainingPrecision = "auto"
    seed: int = 1
    save_every: int | Auto = AUTO
    keep: int = 2
    validate_every: int | Auto = AUTO
    validation_rows: int = 256
    tracker: Literal["tensorboard", "wandb", "none"] = "none"

    def __post_init__(self) -> None:
        check_range(1, 10**9, self, "steps", "save_every", "keep")
        check_range(0, 10**9, self, "warm_up", "validate_every", "validation_rows")
        check_range(1, MAX_LENGTH, self, "batch_size", "micro_batch", "top_k")
        check_range(0, 1000, self, "karcher_steps", "weight_decay")
        check_range(0, MAX_SEED, self, "seed")
        check_choice("precision", self.precision, get_args(TrainingPrecision))
        check_range(-1000, 1000, self, "centre", "steepness", "learning_rate", "confidence_learning_rate")
        for name in (name for name in _POSITIVE if getattr(self, name) != AUTO):
            if not 0 < getattr(self, name) < math.inf:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must be a number above 0")
        for name in _FRACTIONS:
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must lie in [0, 1)")
        if self.freeze_backbone and not self.learns_weight:
            raise ArcmaskError("with a frozen backbone and no learned weight there is nothing to train")

    @property
    def learns_weight(self) -> bool:
        """Whether there is a weight to learn: feedback, and not with a constant weight."""
        return self.operator != "none" and self.fixed_weight is None

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes per parameter of a checkpoint: the model in float32; raw weights, averages and two moments."""
        return 4 + 4 * (8 if self.precision == "float64" else 4)

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        reasons: dict[str, str] = {}
        if self.freeze_backbone:
            reasons |= dict.fromkeys(("learning_rate", "weight_decay"), "the backbone is frozen")
        if self.fixed_weight is not None:
            reasons |= dict.fromkeys(_LEARNED, f"the weight is fixed at {self.fixed_weight:g}")
        if self.operator == "none":
            names = ("top_k", "karcher_steps", "fixed_weight", *_LEARNED)
            reasons |= dict.fromkeys(names, "the operator none feeds nothing back")
        if self.validate_every == 0:
            reasons["validation_rows"] = "validate_every is 0"
        elif self.validation_rows == 0:
            reasons["validate_every"] = "validation_rows is 0"
        return reasons

    def computed(self, *, has_held_out: bool) -> "TrainConfig":
        """Return the settings with what follows from the steps and the start; centre and steepness need the model."""
        every = min(1000, max(1, self.steps // 10))
        values: dict[str, Any] = {
            "learning_rate": _LEARNING_RATES["new" if self.init.startswith("new:") else "continued"],
            "warm_up": self.steps // 20,
            "save_every": every,
            "validate_every": every if has_held_out and self.validation_rows else 0,
        }
        return replace(self, **{name: value for name, value in values.items() if getattr(self, name) == AUTO})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, as config.yaml stores them."""
        return asdict(self) | {"band": list(self.band)}


TrainConfig.__doc__ = (TrainConfig.__doc__ or "").replace("{operators}", OPERATOR_CHOICES)


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """A recipe's settings, any of which can be changed, or settings of one's own; and where to train.

    Args:
        recipe: The name of a recipe, which sets every setting that is not given. Without one, give --data and --init.
        run: The folder of the run. Default: runs/RECIPE, or runs/DATA-OPERATOR without a recipe.
        resume: Resume a run that exists; false refuses it.
        card: With --dry-run, estimate for this GPU in place of this machine: {cards}.
    """

    train: TrainConfig
    recipe: str | None = None
    run: str | None = None
    resume: bool = True
    card: str | None = None

    def __post_init__(self) -> None:
        check_card(self.card)

    @property
    def folder(self) -> str:
        """The folder of the run."""
        operator = self.train.operator.rpartition(":")[2]  # of FILE.py:FUNCTION, the function
        return self.run or f"runs/{self.recipe or f'{Path(self.train.data).resolve().name}-{operator}'}"


TrainCommand.__doc__ = (TrainCommand.__doc__ or "").replace("{cards}", ", ".join(CARDS))
