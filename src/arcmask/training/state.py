"""What a training run keeps on disk: its settings, its metrics, and checkpoints that are complete or not there.

A checkpoint is a model folder that `arcmask.load` reads (averaged weights), with the trainer's state beside it: raw
weights, averages and moments as safetensors, counts as JSON.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from arcmask.errors import ArcmaskError
from arcmask.files import disk_error, flush, json_bytes, write_whole, writing
from arcmask.model import Model
from arcmask.run_folder import (
    CHECKPOINTS,
    COMPLETE,
    CONFIG,
    METRICS,
    checkpoint_step,
    complete_checkpoints,
    interpreting,
    newest_checkpoint,
    read_settings,
    read_yaml,
    write_yaml,
)
from arcmask.settings.train import TrainConfig

TENSORS, COUNTS = "trainer.safetensors", "trainer.json"


def open_run(run: Path, config: TrainConfig) -> None:
    """Write the settings into a run's folder, if they are new or have changed, and remove what killed saves left."""
    (run / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    if not (run / CONFIG).exists() or read_settings(run / CONFIG, read_yaml) != config.to_dict():
        write_yaml(run / CONFIG, config.to_dict())
    _remove_old_checkpoints(run, config.keep)
    for leftover in (run / CHECKPOINTS).glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)


def save_checkpoint(
    run: Path, step: int, model: Model, tensors: Mapping[str, Tensor], counts: Mapping[str, Any], keep: int
) -> None:
    """Write a checkpoint beside its final place, move it there, and only then remove old ones."""
    target = run / CHECKPOINTS / f"step-{step:07d}"
    scratch = target.with_name(f".{target.name}")
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        model.save(scratch)
        safetensors.torch.save_file(dict(tensors), scratch / TENSORS)
        write_whole(scratch / COUNTS, json_bytes(dict(counts)))
        flush(scratch / TENSORS)
        write_whole(scratch / COMPLETE, b"")
        flush(scratch)
        if target.exists():  # an earlier save of this step that was not complete
            shutil.rmtree(target)
        scratch.rename(target)
        flush(target.parent)
    except (OSError, SafetensorError, ArcmaskError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        newest = newest_checkpoint(run)
        kept = "there is no earlier one" if newest is None else f"{newest} is kept"
        reason = disk_error(error) or error
        raise ArcmaskError(f"the checkpoint of step {step} could not be written: {reason}; {kept}") from error
    _remove_old_checkpoints(run, keep)


def _remove_old_checkpoints(run: Path, keep: int) -> None:
    for old in sorted(complete_checkpoints(run), key=checkpoint_step)[:-keep]:
        doomed = old.rename(old.with_name(f".{old.name}"))  # a kill leaves no half of a checkpoint under its name
        shutil.rmtree(doomed, ignore_errors=True)


def read_state(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the trainer's tensors and counts from a checkpoint."""
    try:
        tensors, counts = safetensors.torch.load_file(checkpoint / TENSORS), read_settings(checkpoint / COUNTS)
    except (OSError, SafetensorError, ArcmaskError) as error:
        raise ArcmaskError(f"{checkpoint} has no trainer state that can be read ({error})") from error
    with interpreting(checkpoint / COUNTS, "the counts of a trainer"):
        steps = {name: float(count) for name, count in counts["optimiser_steps"].items()}
        step, updates = int(counts["step"]), int(counts["updates"])
        if step != checkpoint_step(checkpoint):
            raise ValueError(f"the step is {step}")
    return tensors, {"step": step, "updates": updates, "optimiser_steps": steps}


def cut_metrics(run: Path, step: int) -> None:
    """Drop the metrics of later steps, which are trained and logged again, and lines that cannot be read."""
    path = run / METRICS
    if not path.exists():
        return
    kept = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            is_kept = json.loads(line)["step"] <= step
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if is_kept:
            kept.append(line + "\n")
    write_whole(path, "".join(kept).encode())


def append_metrics(run: Path, record: Mapping[str, Any]) -> None:
    """Append one line of metrics."""
    with writing(run / METRICS), (run / METRICS).open("a") as file:
        file.write(json.dumps(dict(record)) + "\n")
