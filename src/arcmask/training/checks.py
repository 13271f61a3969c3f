"""The checks before training, so that a wrong run fails within seconds and before a model is built."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from arcmask.checkpoint.fitting import build_config, default_tokenizer
from arcmask.data import RowCorpus, Tokenizer, open_prepared
from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.estimates import KNOWN_BASES
from arcmask.feedback import Confidence, Gate, SoftMask
from arcmask.feedback.confidence import check_calibration
from arcmask.files import nearest_folder, writable
from arcmask.model import SIZES, MDLMConfig
from arcmask.ranks import world_size
from arcmask.run_folder import (
    CONFIG,
    interpreting,
    newest_checkpoint,
    read_settings,
    read_yaml,
    refuse_other_settings,
)
from arcmask.settings.train import AUTO, COMPUTED, ON_RESUME, TrainConfig
from arcmask.training.state import COUNTS

_EXTEND_COSINE = (
    "every rate of a cosine curve depends on the number of steps, so it cannot be extended; start another run with "
    "--init {run}"
)


def check_before_loading(config: TrainConfig, run: Path, corpus: RowCorpus | None = None) -> TrainConfig:
    """Make every check that needs no model: settings, data, the checkpoint's fit, the run folder and disk space.

    Nothing is written. Returns the settings with what is stored in the run, or computed before a model is loaded.
    `build_model` checks the rest. `corpus` is used in place of the one that the settings name.
    """
    config = check_settings(config, run)
    corpus = open_prepared(config.data, "train") if corpus is None else corpus
    has_held_out = corpus.held_out is not None
    config = config.computed(has_held_out=has_held_out)
    if config.validate_every and config.validation_rows and not has_held_out:
        raise ArcmaskError(
            f"{config.data!r} has no held-out rows, but the run validates every {config.validate_every} steps; give "
            "--validate_every 0"
        )
    check_range(1, corpus.vocab_size, config, "top_k")
    parameters = _count_parameters(config.init, corpus)
    needed = config.checkpoint_bytes * parameters * (config.keep + 1)  # while saving there is one checkpoint more
    free = shutil.disk_usage(nearest_folder(run)).free
    if free < needed:
        raise ArcmaskError(f"{run} has {free / 1e9:.1f} GB free, but its checkpoints need {needed / 1e9:.1f} GB")
    return config


def check_settings(config: TrainConfig, run: Path) -> TrainConfig:
    """Make every check that needs no data, and return the settings with what is stored in the run."""
    if (run / CONFIG).exists():
        config = _take_stored(config, run)
    build_feedback(config)
    build_gate(config)
    if config.init.startswith("new:"):
        check_choice("model size", config.init.removeprefix("new:"), SIZES)
    elif config.init.endswith(".ckpt") and not Path(config.init).is_file():
        raise ArcmaskError(f"there is no file {config.init}")
    check_batches(config, world_size())
    writable(run, is_folder=True)
    return config


def check_batches(config: TrainConfig, world: int) -> None:
    """Raise unless the batch can be shared evenly by `world` ranks, and a rank's share cut into micro-batches."""
    if config.batch_size % world:
        raise ArcmaskError(f"the batch of {config.batch_size} cannot be shared evenly by {world} ranks")
    share = config.batch_size // world
    if share % min(config.micro_batch, share):
        raise ArcmaskError(
            f"a rank's {share} sequences cannot be cut evenly into micro-batches of {config.micro_batch}"
        )


def most_ranks(configs: Sequence[TrainConfig], most: int) -> tuple[int, str]:
    """Return the largest number of ranks, up to `most`, that can share the batches, and why it is not `most`."""
    reason = ""
    for world in range(most, 1, -1):
        try:
            for config in configs:
                check_batches(config, world)
        except ArcmaskError as error:
            reason = reason or str(error)
        else:
            return world, reason
    return 1, reason


def _take_stored(config: TrainConfig, run: Path) -> TrainConfig:
    """Return the settings with the numbers that the run has stored for what is "auto".

    Raise if settings differ that would change the result; `ON_RESUME` says which.
    """
    stored = read_settings(run / CONFIG, read_yaml)
    numbers = {name: stored[name] for name in COMPUTED if getattr(config, name) == AUTO and name in stored}
    with interpreting(run / CONFIG, "the settings of a training run"):
        config = replace(config, **numbers)
        grows = config.steps > stored["steps"]
    checkpoint = newest_checkpoint(run)
    has_dropout = checkpoint is not None and stored.get("dropout") != 0 and _has_dropout(checkpoint)
    may_differ = {*ON_RESUME["always"], *(() if has_dropout else ON_RESUME["without dropout"])}
    if grows and config.curve == stored.get("curve") == "constant":
        may_differ |= set(ON_RESUME["larger"])
    there, here = ({k: v for k, v in each.items() if k not in may_differ} for each in (stored, config.to_dict()))
    advice = _EXTEND_COSINE.format(run=run) if grows and config.curve == "cosine" else "give another name"
    refuse_other_settings(run, there, here, advice)
    if has_dropout and checkpoint is not None:
        _refuse_other_ranks(run, checkpoint)
    return config


def _has_dropout(checkpoint: Path) -> bool:
    """Return whether the model of a checkpoint has dropout of its own; only a Diffusion Transformer says so."""
    settings = read_settings(checkpoint / "config.json")
    return settings.get("model_type") != "mdlm" or settings.get("dropout") != 0


def _refuse_other_ranks(run: Path, checkpoint: Path) -> None:
    """Raise if a run with dropout, which depends on the ranks, was trained by another number of them."""
    ranks = read_settings(checkpoint / COUNTS).get("ranks", world_size())  # earlier versions did not store it
    if ranks != world_size():
        raise ArcmaskError(
            f"{run} was trained by {ranks} ranks, not {world_size()}, and its dropout depends on them; use as many, "
            f"with --processes {ranks} or a launcher, or give another name"
        )


def build_feedback(config: TrainConfig) -> SoftMask:
    """Build the feedback that a run trains. What is "auto" is as in the paper until `calibrate` has replaced it."""
    numbers = {name: getattr(config, name) for name in ("centre", "steepness") if getattr(config, name) != AUTO}
    if "centre" not in numbers:
        check_calibration(config.scale)
    confidence = Confidence(scale=config.scale, fixed=config.fixed_weight, **numbers)
    return SoftMask(config.operator, config.top_k, config.karcher_steps, confidence, config.band)


def build_gate(config: TrainConfig) -> Gate:
    """Build the gate that decides which steps use feedback."""
    return Gate(probability=config.gate_probability, band=config.band, reading=config.band_reading)


def _count_parameters(init: str, corpus: RowCorpus) -> int:
    """Check that the model fits the data, as far as can be seen without loading; return about how large it is."""
    if init.startswith("new:"):
        size = init.removeprefix("new:")
        width, blocks = SIZES[size]["hidden_dim"], SIZES[size]["n_blocks"]
        return 2 * corpus.vocab_size * width + 13 * blocks * width * width
    path = Path(init)
    known = KNOWN_BASES.get(init)
    if isinstance(known, MDLMConfig) and not path.exists():
        _check_fits(known, corpus, default_tokenizer(known.vocab_size))
    if not (path / "config.json").is_file():
        return 0  # a run, a file or a hub id: checked when it is loaded
    settings = read_settings(path / "config.json")
    if settings.get("model_type") == "mdlm":
        _check_fits(build_config(str(path / "config.json"), settings), corpus)
    weights = path / "model.safetensors"
    return weights.stat().st_size // 4 if weights.is_file() else 0


def _check_fits(config: MDLMConfig, corpus: RowCorpus, tokenizer: Tokenizer | None = None) -> None:
    sizes = {"vocab_size": config.vocab_size, "mask_id": config.mask_token_id, "max_length": config.model_length}
    corpus.check_fits(**sizes, tokenizer=tokenizer)
