"""What a training's metrics say: at one step for the tables, over steps for the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arcmask.report.folder import Experiment, Training

POINTS = 60  # of a curve, at most


@dataclass(frozen=True)
class Curve:
    """Means over blocks of steps, each at the block's last step; blocks without a value are left out."""

    steps: list[int]
    values: list[float]


def block_size(trainings: Sequence[Training]) -> int:
    """Steps in a block: at most POINTS blocks in the longest of the trainings, and 5 steps or more if it has 50."""
    longest = max((training.done for training in trainings), default=1)
    return max(1, math.ceil(longest / POINTS), min(5, longest // 10))


def curve(training: Training, key: str, size: int) -> Curve:
    """The means of a metric over blocks of `size` steps."""
    blocks: dict[int, list[float]] = {}
    for record in training.records:
        if record.get(key) is not None:
            blocks.setdefault((record["step"] - 1) // size, []).append(float(record[key]))
    whole = {number: values for number, values in blocks.items() if (number + 1) * size <= training.done}
    return Curve([(n + 1) * size for n in whole], [sum(v) / len(v) for v in whole.values()])


def window(step: int) -> int:
    """Steps over which the tables average what is noisy at a single step: a tenth of those so far, 10 to 100."""
    return min(step, max(10, min(100, step // 10)))


def read_step(experiment: Experiment) -> int | None:
    """The step at which the tables read: the plan's, or the last that every training has."""
    planned = experiment.plan.get("read_at")
    done = [training.done for training in experiment.trainings.values() if training.done]
    return planned or (min(done) if done else None)


def at_step(training: Training, step: int) -> dict[str, float]:
    """Metrics at a step: means over the window before it, validation as last measured; empty if it was not reached."""
    if training.done < step:
        return {}
    found: dict[str, float] = {}
    recent = [record for record in training.records if step - window(step) < record["step"] <= step]
    for key in ("nll", "weight", "angle", "euclidean_angle"):
        values = [float(record[key]) for record in recent if record.get(key) is not None]
        if values:
            found[key] = sum(values) / len(values)
    if "nll" in found:
        found["perplexity"] = math.exp(found["nll"])
    for key in ("angle", "euclidean_angle"):
        if key in found:
            found[key] = math.degrees(found[key])
    for record in training.records:
        if record["step"] <= step:
            found |= {key: float(value) for key, value in record.items() if _is_validation(key, value)}
    if training.settings.get("operator") == "none":
        found["weight"] = 0.0
    return found


def _is_validation(key: str, value: Any) -> bool:
    return key.startswith("validation_perplexity") and value is not None
