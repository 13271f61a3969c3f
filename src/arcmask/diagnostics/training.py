"""Angles and weights over training, from a run's metrics. Knows the run's files, not the loop that wrote them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcmask.data.index import INDEX
from arcmask.errors import ArcmaskError

_POINTS = 400


@dataclass(frozen=True)
class TrainingAngles:
    """Means over stretches of steps with feedback: degrees to both means, and the weight."""

    steps: list[float]
    euclidean: list[float]
    frechet: list[float]
    weight: list[float]
    steps_with_feedback: int
    # The mean over the first and the last tenth of the steps with feedback.
    euclidean_first: float
    euclidean_last: float
    weight_first: float
    weight_last: float

    @property
    def reading(self) -> str:
        return (
            f"From the first to the last tenth of {self.steps_with_feedback} steps with feedback the angle to the "
            f"Euclidean mean goes from {self.euclidean_first:.1f} to {self.euclidean_last:.1f} degrees and the weight "
            f"from {self.weight_first:.3f} to {self.weight_last:.3f}: a flat angle says that training leaves the "
            "geometry as it is, a rising weight that the model makes use of what is fed back."
        )


def angles_over_training(metrics: Sequence[Mapping[str, Any]]) -> TrainingAngles:
    """The lines of a run's metrics -> angles and weights, averaged over stretches if there are many."""
    fed = [line for line in metrics if "angle" in line and "euclidean_angle" in line]
    if not fed:
        raise ArcmaskError("the run's metrics have no angles: none of its steps used feedback")
    columns = {
        "steps": [float(line["step"]) for line in fed],
        "euclidean": [math.degrees(line["euclidean_angle"]) for line in fed],
        "frechet": [math.degrees(line["angle"]) for line in fed],
        "weight": [float(line["weight"]) for line in fed],
    }
    stretch, tenth = math.ceil(len(fed) / _POINTS), max(1, len(fed) // 10)
    euclidean, weight = columns["euclidean"], columns["weight"]
    return TrainingAngles(
        **{name: [_mean(c[i : i + stretch]) for i in range(0, len(c), stretch)] for name, c in columns.items()},
        steps_with_feedback=len(fed),
        euclidean_first=_mean(euclidean[:tenth]),
        euclidean_last=_mean(euclidean[-tenth:]),
        weight_first=_mean(weight[:tenth]),
        weight_last=_mean(weight[-tenth:]),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def find_data(run: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the prepared folder of a run; a relative one is looked for here and in the folders above the run."""
    name = settings.get("data")
    if not isinstance(name, str):
        return None
    folders = [Path(name), *(folder / name for folder in run.resolve().parents)]
    return next((folder for folder in folders if (folder / INDEX).is_file()), None)
