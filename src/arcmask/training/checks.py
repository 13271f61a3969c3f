"""The checks before training, so that a wrong run fails within seconds and before a model is built."""

import shutil
from pathlib import Path

from arcmask.checkpoint.fitting import build_config
from arcmask.data import PreparedCorpus, open_prepared, read_index
from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.feedback import Confidence, Gate, SoftMask
from arcmask.files import nearest_folder, writable
from arcmask.model import SIZES
from arcmask.ranks import world_size
from arcmask.run_folder import CONFIG, read_settings, read_yaml, refuse_other_settings
from arcmask.settings.train import TrainConfig

# Weights, raw weights, averages and two moments, in float32.
STATE_BYTES = 5 * 4


def check_before_loading(config: TrainConfig, run: Path) -> None:
    """Check settings, data, the checkpoint's fit, the run folder's settings, write access and disk space.

    Nothing is written.
    """
    if (run / CONFIG).exists():
        refuse_other_settings(run, read_settings(run / CONFIG, read_yaml), config.to_dict())
    build_feedback(config)
    build_gate(config)
    world = world_size()
    if config.batch_size % world:
        raise ArcmaskError(f"the batch of {config.batch_size} cannot be shared evenly by {world} ranks")
    share = config.batch_size // world
    if share % min(config.micro_batch, share):
        raise ArcmaskError(
            f"a rank's {share} sequences cannot be cut evenly into micro-batches of {config.micro_batch}"
        )
    corpus = open_prepared(config.data, "train")
    if config.validate_every and config.validation_rows and read_index(config.data).splits["validation"].rows == 0:
        raise ArcmaskError(
            f"{config.data!r} was prepared with holdout none, but the run validates every {config.validate_every} "
            "steps; give --validate_every 0"
        )
    check_range(1, corpus.vocab_size, config, "top_k")
    parameters = _count_parameters(config.init, corpus)
    needed = STATE_BYTES * parameters * (config.keep + 1)  # while saving there is one checkpoint more
    free = shutil.disk_usage(nearest_folder(writable(run, is_folder=True))).free
    if free < needed:
        raise ArcmaskError(f"{run} has {free / 1e9:.1f} GB free, but its checkpoints need {needed / 1e9:.1f} GB")


def build_feedback(config: TrainConfig) -> SoftMask:
    """Build the feedback that a run trains."""
    confidence = (
        Confidence(scale=config.scale, centre=config.centre, steepness=config.steepness)
        if config.fixed_weight is None
        else Confidence(fixed=config.fixed_weight)
    )
    return SoftMask(config.operator, config.top_k, config.karcher_steps, confidence, config.band)


def build_gate(config: TrainConfig) -> Gate:
    """Build the gate that decides which steps use feedback."""
    return Gate(probability=config.gate_probability, band=config.band, reading=config.band_reading)


def _count_parameters(init: str, corpus: PreparedCorpus) -> int:
    """Check that the model fits the data, as far as can be seen without loading; return about how large it is."""
    if init.startswith("new:"):
        size = init.removeprefix("new:")
        check_choice("model size", size, SIZES)
        width, blocks = SIZES[size]["hidden_dim"], SIZES[size]["n_blocks"]
        return 2 * corpus.vocab_size * width + 13 * blocks * width * width
    path = Path(init)
    if not (path / "config.json").is_file():
        if path.suffix == ".ckpt" and not path.is_file():
            raise ArcmaskError(f"there is no file {path}")
        return 0  # a run, a file or a hub id: checked when it is loaded
    settings = read_settings(path / "config.json")
    if settings.get("model_type") == "mdlm":
        config = build_config(str(path / "config.json"), settings)
        corpus.check_fits(vocab_size=config.vocab_size, mask_id=config.mask_token_id, max_length=config.model_length)
    weights = path / "model.safetensors"
    return weights.stat().st_size // 4 if weights.is_file() else 0
