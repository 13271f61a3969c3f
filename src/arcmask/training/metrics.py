"""The metrics of a step, from sums over micro-batches and ranks; and the experiment tracker."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from arcmask.objective import Objective
from arcmask.settings.train import TrainConfig


class Sums:
    """What is added up over micro-batches and ranks.

    The entries are loss, masked positions, positions with feedback, weight, squared weight, angle, Euclidean angle.
    """

    SIZE = 7

    @staticmethod
    def of(result: Objective) -> Tensor:
        """Return the sums of one micro-batch."""
        counts, values = [result.masked, 0], [result.loss.detach().double()]
        if result.feedback is not None:
            weight = result.feedback.weight.detach().double()
            angles = (result.feedback.angle.double(), result.feedback.euclidean_angle.double())
            counts[1] = len(weight)
            values += [x.sum() for x in (weight, weight.square(), *angles)]
        loss, *others = torch.stack(values).tolist()  # one transfer, since a GPU waits for each
        return torch.tensor([loss, *counts, *(others or [0.0] * 4)], dtype=torch.float64)

    @staticmethod
    def record(total: Tensor, positions: int) -> dict[str, Any]:
        """Return the metrics; those of the feedback only if a position had any."""
        loss, masked, positions_fed, weight, squares, angle, euclidean = total.tolist()
        nll = loss / positions
        record: dict[str, Any] = {
            "loss": nll,
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
            "masked": int(masked),
        }
        if positions_fed:
            mean = weight / positions_fed
            record |= {
                "weight": mean,
                "weight_spread": math.sqrt(max(0.0, squares / positions_fed - mean * mean)),
                "angle": angle / positions_fed,
                "euclidean_angle": euclidean / positions_fed,
            }
        return record


class Tracker:
    """An experiment tracker. If it fails, training continues without it."""

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
        """Send the numbers of a record to the tracker."""
        if self._accelerator is None:
            return
        numbers = {key: value for key, value in record.items() if isinstance(value, (int, float))}
        try:
            self._accelerator.log(numbers, step=record["step"])
        except Exception as error:
            self._drop(error)

    def _drop(self, error: Exception) -> None:
        warnings.warn(f"the tracker failed and is no longer used; training continues ({error})", stacklevel=2)
        self._accelerator = None
