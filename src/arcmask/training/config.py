"""The settings of a training run. Imports nothing heavy: it is read for `--help`."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything a run depends on.

    Args:
        data: A folder that `arcmask prepare` made.
        init: A checkpoint to go on from, or new:SIZE for a model from scratch (tiny, mini, small, medium).
        operator: How predictions are fed back: none, linear, renormalized, spherical, spherical-euclidean.
        top_k: Candidates that are fed back.
        karcher_steps: Steps of the Fréchet mean.
        fixed_weight: A constant weight instead of the learned one.
        scale: Where the learned weight's scale starts.
        centre: Where its centre starts.
        steepness: Where its steepness starts.
        gate_probability: Share of steps with feedback.
        band: The times that may be fed back.
        band_reading: batch-mean (the paper's appendix) or draw (its main text).
        steps: Optimiser steps.
        batch_size: Sequences in a step, over all ranks.
        micro_batch: Sequences of a rank at a time.
        learning_rate: Of the backbone.
        confidence_learning_rate: Of the three scalars.
        warm_up: Steps over which both rise from zero.
        curve: constant, or cosine down to zero.
        weight_decay: Of AdamW.
        beta2: Of AdamW.
        clip: The largest gradient norm.
        ema: Decay of the averaged weights; those are validated and saved.
        dropout: In place of the model's own.
        freeze_backbone: Train the three scalars alone.
        checkpoint_blocks: Compute activations twice to save memory.
        compile_blocks: torch.compile for each block.
        precision: auto, float32 or bfloat16 (weights stay in float32).
        seed: Of everything that is random.
        save_every: Steps between checkpoints.
        keep: Checkpoints that are kept.
        validate_every: Steps between validations; 0 for none.
        validation_rows: Rows in a validation.
        tracker: tensorboard, wandb or none.
    """

    data: str
    init: str
    operator: str = "spherical"
    top_k: int = 3
    karcher_steps: int = 3
    fixed_weight: float | None = None
    scale: float = 0.5
    centre: float = -4.0
    steepness: float = 10 / 1.5
    gate_probability: float = 0.5
    band: tuple[float, float] = (0.2, 0.8)
    band_reading: Literal["batch-mean", "draw"] = "batch-mean"
    steps: int = 1000
    batch_size: int = 32
    micro_batch: int = 32
    learning_rate: float = 3e-5
    confidence_learning_rate: float = 1e-2
    warm_up: int = 200
    curve: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    beta2: float = 0.999
    clip: float = 1.0
    ema: float = 0.9999
    dropout: float | None = None
    freeze_backbone: bool = False
    checkpoint_blocks: bool = False
    compile_blocks: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 1
    save_every: int = 500
    keep: int = 2
    validate_every: int = 500
    validation_rows: int = 256
    tracker: Literal["tensorboard", "wandb", "none"] = "none"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "micro_batch", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must be 1 or more")
        for name in ("warm_up", "validate_every", "validation_rows", "seed"):
            if getattr(self, name) < 0:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must be 0 or more")
        for name in ("learning_rate", "confidence_learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must be above 0")
        for name in ("ema", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ArcmaskError(f"{name} is {getattr(self, name)}, but must lie in [0, 1)")
        if self.freeze_backbone and (self.operator == "none" or self.fixed_weight is not None):
            raise ArcmaskError("with a frozen backbone and no learned weight there is nothing to train")

    def differences(self, other: dict[str, Any]) -> str:
        """How another run's settings differ from these, as text; empty if they do not."""
        mine = asdict(self) | {"band": list(self.band)}
        names = [field.name for field in fields(self)]
        differing = [name for name in names if other.get(name) != mine[name]]
        unknown = sorted(set(other) - set(names))
        parts = [f"{name} is {other.get(name)!r} there and {mine[name]!r} here" for name in differing]
        return "; ".join([*parts, *(f"{name} is unknown here" for name in unknown)])
