"""The metrics of a step, from sums over micro-batches and ranks; and the experiment tracker."""

import math
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from arcmask.objective import Objective
from arcmask.settings.train import TrainConfig

RECENT = 20  # steps


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


class Recent:
    """Where a run is, for its progress line. Loss and weight are means over 20 steps: those of one step are noisy."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=RECENT)
        self._weights: deque[float] = deque(maxlen=RECENT)
        self._validation = ""

    def add(self, record: Mapping[str, Any]) -> str:
        """Add the metrics of a step; return loss, last validation loss, mean weight and learning rate."""
        self._losses.append(record["loss"])
        if "weight" in record:
            self._weights.append(record["weight"])
        if "validation_nll_plain" in record:
            self._validation = f", validation {_validation(record)}"
        weight = f", weight {fmean(self._weights):.3f}" if self._weights else ""
        rate = f", learning rate {record['learning_rate']:.2g}"
        return f"loss {fmean(self._losses):.3f}{self._validation}{weight}{rate}"


def describe_result(records: Sequence[Mapping[str, Any]]) -> str:
    """Say in one sentence what a run has reached, from its metrics: the validation loss, or that of training."""
    last, recent = records[-1], records[-RECENT:]
    if "validation_nll_plain" in last:
        reached = f"the validation loss is {_validation(last)}, in nats per token"
    else:
        loss = fmean(record["loss"] for record in recent)
        reached = f"the training loss is {loss:.3f} nats per token, the mean of the last {len(recent)} steps"
    return f"trained {last['step']:,} steps; {reached}"


def _validation(record: Mapping[str, Any]) -> str:
    plain = f"{record['validation_nll_plain']:.4f}"
    if "validation_nll_feedback" not in record:
        return plain
    return f"{record['validation_nll_feedback']:.4f} with feedback and {plain} without"


class Tracker:
    """An experiment tracker. If it fails, training continues without it."""

    def __init__(self, config: TrainConfig, run: Path) -> None:
        self._accelerator: Accelerator | None = None
        if config.tracker == "none":
            return
        try:
            self._accelerator = Accelerator(
                cpu=not torch.cuda.is_available(),
                mixed_precision="no",
                log_with=config.tracker,
                project_dir=str(run / "tracker"),
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
