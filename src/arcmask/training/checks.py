"""What can be wrong with a run, seen before a model is built: a wrong run dies within seconds."""

import json
import os
import shutil
from pathlib import Path

from arcmask.data import open_prepared, read_index
from arcmask.errors import ArcmaskError, unknown_name
from arcmask.feedback import find_operator
from arcmask.model import SIZES
from arcmask.training.config import TrainConfig
from arcmask.training.state import RunFolder


def check_before_loading(config: TrainConfig, run: Path, *, write: bool = True) -> None:
    """Settings, data, the checkpoint's fit, the batch's divisibility, write access and disk space.

    With `write` the run's folder is made; without, nothing is.
    """
    find_operator(config.operator)
    world = int(os.environ.get("WORLD_SIZE", 1))
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
    if config.init.startswith("new:"):
        size = config.init.removeprefix("new:")
        if size not in SIZES:
            raise unknown_name("model size", size, SIZES)
        width, blocks = SIZES[size]["hidden_dim"], SIZES[size]["n_blocks"]
        parameters = 2 * corpus.vocab_size * width + 13 * blocks * width * width
    else:
        parameters = _check_checkpoint(config.init, corpus)
    if not write or int(os.environ.get("RANK", 0)) > 0:
        return  # the folder is the first rank's to make
    RunFolder(run).open(config)
    # Weights, raw weights, averages and two moments, in float32; one checkpoint more than are kept exists while saving.
    needed = 5 * 4 * parameters * (config.keep + 1)
    free = shutil.disk_usage(run).free
    if free < needed:
        raise ArcmaskError(f"{run} has {free / 1e9:.1f} GB free, but its checkpoints need {needed / 1e9:.1f} GB")


def _check_checkpoint(init: str, corpus: object) -> int:
    """See that a local model folder fits the data; returns about how many parameters it has."""
    path = Path(init)
    settings = path / "config.json"
    if not settings.is_file():
        if path.suffix == ".ckpt" and not path.is_file():
            raise ArcmaskError(f"there is no file {path}")
        return 0  # a run, a file or a hub id: seen when it is opened
    content = json.loads(settings.read_text())
    if content.get("model_type") == "mdlm":
        vocabulary = content["vocab_size"]
        corpus.check_fits(  # type: ignore[attr-defined]
            vocab_size=vocabulary,
            mask_id=content.get("mask_token_id", vocabulary - 1),
            max_length=content.get("model_length"),
        )
    weights = path / "model.safetensors"
    return weights.stat().st_size // 4 if weights.is_file() else 0
