"""A run's folder: its settings, its metrics, and checkpoints that are complete or not there.

Knows files, not the loop. A checkpoint is a model folder as `arcmask.load` reads it (averaged weights) with the
trainer's state beside: raw weights, moments and averages as safetensors, counts as JSON.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import yaml  # type: ignore[import-untyped]
from safetensors import SafetensorError
from torch import Tensor

from arcmask.checkpoint import COMPLETE, newest_checkpoint
from arcmask.errors import ArcmaskError
from arcmask.files import flush, is_full_disk, json_bytes, write_whole
from arcmask.training.config import TrainConfig

TENSORS, COUNTS, CONFIG, METRICS = "trainer.safetensors", "trainer.json", "config.yaml", "metrics.jsonl"


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    def open(self, config: TrainConfig) -> None:
        """Make the folder, or see that it is of the same settings; leftovers of killed saves are removed."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            settings = self.path / CONFIG
            if settings.exists():
                differences = config.differences(yaml.safe_load(settings.read_text()))
                if differences:
                    raise ArcmaskError(f"the run {self.path} has other settings ({differences}); give another name")
            else:
                write_whole(settings, yaml.safe_dump(plain_settings(config), sort_keys=False).encode())
            for leftover in self.checkpoints.glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)
        except OSError as error:
            raise ArcmaskError(f"the run folder {self.path} cannot be written: {error.strerror}") from error

    def newest(self) -> Path | None:
        """The last complete checkpoint, if there is one."""
        try:
            return newest_checkpoint(self.path)
        except ArcmaskError:
            return None

    def save(self, step: int, model: Any, tensors: Mapping[str, Tensor], counts: Mapping[str, Any], keep: int) -> Path:
        """Write a checkpoint beside, move it into place, and only then remove old ones."""
        target = self.checkpoints / f"step-{step:07d}"
        scratch = self.checkpoints / f".step-{step:07d}"
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            model.save_pretrained(scratch)
            safetensors.torch.save_file(dict(tensors), scratch / TENSORS)
            write_whole(scratch / COUNTS, json_bytes(dict(counts)))
            flush(scratch / TENSORS)
            write_whole(scratch / COMPLETE, b"")
            flush(scratch)
            if target.exists():  # an earlier save of this very step that was not complete
                shutil.rmtree(target)
            scratch.rename(target)
            flush(self.checkpoints)
        except (OSError, SafetensorError, ArcmaskError) as error:
            shutil.rmtree(scratch, ignore_errors=True)
            full = is_full_disk(error) or is_full_disk(error.__cause__ or error)
            kept = self.newest()
            raise ArcmaskError(
                f"the checkpoint of step {step} could not be written: {'the disk is full' if full else error}; "
                f"{'there is no earlier one' if kept is None else f'{kept} is kept'}"
            ) from error
        complete = sorted(path for path in self.checkpoints.glob("step-*") if (path / COMPLETE).is_file())
        for old in complete[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
        return target

    def read(self, checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The trainer's state in a checkpoint."""
        try:
            tensors = safetensors.torch.load_file(checkpoint / TENSORS)
            return tensors, json.loads((checkpoint / COUNTS).read_text())
        except (OSError, SafetensorError, ValueError) as error:
            raise ArcmaskError(f"{checkpoint} has no trainer state that can be read ({error})") from error

    def cut_metrics(self, step: int) -> None:
        """Drop lines of steps after this one, and a line that was not finished: they are written again."""
        path = self.path / METRICS
        if not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                break
            if record["step"] <= step:
                kept.append(line + "\n")
        write_whole(path, "".join(kept).encode())

    def append(self, record: Mapping[str, Any]) -> None:
        """One more line of metrics."""
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(dict(record)) + "\n")


def plain_settings(config: TrainConfig) -> dict[str, Any]:
    """Settings as YAML has them."""
    return asdict(config) | {"band": list(config.band)}
