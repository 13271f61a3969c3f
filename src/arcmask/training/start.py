"""The model that a run starts from, checked against its data, and the initial confidence that fits it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arcmask.checkpoint import load
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import Batches, RowCorpus
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence
from arcmask.feedback.calibration import draft_entropies, rows_to_measure
from arcmask.model import MDLM, SIZES, Model, autocast
from arcmask.settings.train import AUTO, TrainConfig


def build_model(config: TrainConfig, corpus: RowCorpus, model: Model | None = None) -> Model:
    """Build the model to train: a new one from the seed, or a checkpoint's, in float32 or float64. It fits the corpus.

    `model` is used in place of the one that the settings name.
    """
    changes: dict[str, Any] = {} if config.dropout is None else {"dropout": config.dropout}
    if model is None and config.init.startswith("new:"):
        size = config.init.removeprefix("new:")
        model_length = max(corpus.length, SIZES[size]["model_length"])
        new = MDLM.create(size, corpus.vocab_size, config.seed, model_length=model_length, **changes)
        set_up(config, new)
        return new.double() if config.precision == "float64" else new
    model = load(config.init) if model is None else model
    check_corpus(corpus, model)
    if config.precision == "float64":
        model.double()
    elif model.table.dtype != torch.float64:
        model.float()
    set_up(config, model)
    return model


def set_up(config: TrainConfig, model: Model) -> None:
    """Give a model the dropout and the checkpointing of a run; raise if it cannot have them, or cannot be compiled."""
    if config.dropout is not None:
        model.set_dropout(config.dropout)
    model.set_checkpointing(config.checkpoint_blocks)
    if config.compile_blocks and not model.blocks:
        raise ArcmaskError(
            f"compile_blocks is true, but it is not known which layers of {config.init} are blocks; leave it out"
        )


def measure_entropies(config: TrainConfig, corpus: RowCorpus, model: Model) -> Tensor:
    """Return the entropies (M,) of the model at masked positions of training rows that the seed chooses."""
    rows = Batches(corpus, batch_size=rows_to_measure(corpus.length), seed=config.seed).batch(0)
    with autocast(config.precision, model.table.device):
        return draft_entropies(model, rows, band=config.band, seed=config.seed)


def calibrate(config: TrainConfig, entropy: Tensor) -> TrainConfig:
    """Return the settings with numbers for centre and steepness; those that are "auto" are fitted to entropies (M,)."""
    centre, steepness = (None if value == AUTO else float(value) for value in (config.centre, config.steepness))
    if centre is None or steepness is None:
        confidence = Confidence.calibrated(entropy, config.scale, centre=centre, steepness=steepness)
        centre = round(confidence.centre.item(), 6) if centre is None else centre
        steepness = round(confidence.steepness.item(), 6) if steepness is None else steepness
    return replace(config, centre=centre, steepness=steepness)


def describe_start(config: TrainConfig, entropy: Tensor) -> str:
    """Describe the weights with which a run starts at entropies (M,)."""
    confidence = Confidence(scale=config.scale, centre=float(config.centre), steepness=float(config.steepness))
    is_new = config.init.startswith("new:")
    hint = "; a new model outgrows these weights, so train it with `--operator none` first" if is_new else ""
    return (
        f"feedback starts with centre {config.centre:.4g}, steepness {config.steepness:.4g} and the mean weight "
        f"{confidence(entropy).mean().item():.3g}, at {len(entropy)} masked positions with a median entropy of "
        f"{entropy.median().item():.3g} nats{hint}"
    )
