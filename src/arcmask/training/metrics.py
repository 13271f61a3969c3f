"""What a step says of itself: sums over micro-batches and ranks as metrics, and the tracker that hears of them."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor

from arcmask.objective import Objective
from arcmask.training.config import TrainConfig


class Sums:
    """What is added up over micro-batches and ranks: [loss, masked, fed, weight, weight^2, angle, Euclidean angle]."""

    SIZE = 7

    @staticmethod
    def of(found: Objective) -> Tensor:
        """Of one micro-batch."""
        sums = [float(found.loss.detach()), float(found.masked), 0.0, 0.0, 0.0, 0.0, 0.0]
        if found.feedback is not None:
            weight = found.feedback.weight.detach().double()
            angles = (found.feedback.angle.double(), found.feedback.euclidean_angle.double())
            sums[2:] = [len(weight), *(float(x.sum()) for x in (weight, weight.square(), *angles))]
        return torch.tensor(sums, dtype=torch.float64)

    @staticmethod
    def record(total: Tensor, positions: int) -> dict[str, Any]:
        """As metrics; means of what is fed back only where something was."""
        loss, masked, fed, weight, squares, angle, euclidean = total.tolist()
        nll = loss / positions
        record: dict[str, Any] = {
            "loss": nll,
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
            "masked": int(masked),
        }
        if fed:
            mean = weight / fed
            record |= {
                "weight": mean,
                "weight_spread": math.sqrt(max(0.0, squares / fed - mean * mean)),
                "angle": angle / fed,
                "euclidean_angle": euclidean / fed,
            }
        return record


class Tracker:
    """An experiment tracker that can be lost without harm."""

    def __init__(self, config: TrainConfig, run: Path) -> None:
        self._accelerator: Accelerator | None = None
        if config.tracker == "none":
            return
        try:
            self._accelerator = Accelerator(
                cpu=not torch.cuda.is_available(), log_with=config.tracker, project_dir=str(run / "tracker")
            )
            self._accelerator.init_trackers(run.name)
        except Exception as error:
            self._drop(error)

    def log(self, record: Mapping[str, Any]) -> None:
        """Numbers only."""
        if self._accelerator is None:
            return
        numbers = {key: value for key, value in record.items() if isinstance(value, (int, float))}
        try:
            self._accelerator.log(numbers, step=record["step"])
        except Exception as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        warnings.warn(f"the tracker failed and is dropped; training goes on ({error})", stacklevel=2)
        self._accelerator = None
