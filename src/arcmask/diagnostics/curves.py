"""Draw metrics over training steps, and measure a run's angles and weights from its metrics.

`arcmask inspect` draws one run with this module, and the report draws arms and seeds. A curve maps steps to values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arcmask.errors import ArcmaskError
from arcmask.evaluation.statistics import summarize

if TYPE_CHECKING:  # matplotlib is an optional dependency
    from arcmask.figures import Axes

Curve = Mapping[float, float]
_POINTS = 60  # the largest number of blocks in a curve
_STRETCHES = 400


def block_size(steps: int) -> int:
    """Return the steps per block for a run of that many steps: at most 60 blocks, of 5 steps or more from 50 steps."""
    return max(1, math.ceil(steps / _POINTS), min(5, steps // 10))


def block_means(records: Sequence[Mapping[str, Any]], key: str, size: int) -> dict[float, float]:
    """Average a metric over blocks of `size` steps, each at its last step. Blocks without a value are left out."""
    blocks: dict[int, list[float]] = {}
    for record in records:
        if record.get(key) is not None:
            blocks.setdefault((record["step"] - 1) // size, []).append(float(record[key]))
    last = records[-1]["step"] if records else 0
    return {(n + 1) * size: sum(values) / len(values) for n, values in blocks.items() if (n + 1) * size <= last}


def mean_curve(curves: Sequence[Curve]) -> dict[float, float]:
    """Average curves at the steps that all of them have."""
    shared = [step for step in curves[0] if all(step in curve for curve in curves)]
    return {step: sum(curve[step] for curve in curves) / len(curves) for step in shared}


def draw_curves(
    axes: "Axes", curves: Sequence[Curve], label: str, *, colour: str, dashes: Any = "-", band: bool = False
) -> dict[str, Any]:
    """Draw the mean over seeds, and a thin line per seed or a 95 % confidence band; return the drawn numbers."""
    mean = mean_curve(curves)
    steps, numbers = list(mean), list(mean.values())
    drawn: dict[str, Any] = {"label": label, "steps": steps, "mean": numbers}
    if band:
        drawn["half_width"] = [summarize([curve[step] for curve in curves]).half_width for step in steps]
        halves = [0.0 if half is None else half for half in drawn["half_width"]]
        low, high = ([y + sign * half for y, half in zip(numbers, halves, strict=True)] for sign in (-1, 1))
        axes.fill_between(steps, low, high, color=colour, alpha=0.16, lw=0)
    elif len(curves) > 1:
        for curve in curves:
            axes.plot(list(curve), list(curve.values()), color=colour, lw=0.6, alpha=0.45)
    axes.plot(steps, numbers, color=colour, ls=dashes, lw=1.9, label=label)
    return drawn


@dataclass(frozen=True)
class TrainingAngles:
    """Angles in degrees and weights over the steps with feedback, averaged over stretches of a long run."""

    steps: list[float]
    euclidean: list[float]
    frechet: list[float]
    weight: list[float]
    steps_with_feedback: int
    # Means over the first and the last tenth of the steps with feedback.
    euclidean_first: float
    euclidean_last: float
    weight_first: float
    weight_last: float

    @property
    def reading(self) -> str:
        return (
            f"Between the first and the last tenth of {self.steps_with_feedback} steps with feedback, the angle to the "
            f"Euclidean mean goes from {self.euclidean_first:.1f} to {self.euclidean_last:.1f} degrees and the weight "
            f"from {self.weight_first:.3f} to {self.weight_last:.3f}. A constant angle means that training does not "
            "change the geometry. A rising weight means that the model uses the feedback more."
        )


def angles_over_training(metrics: Sequence[Mapping[str, Any]]) -> TrainingAngles:
    """Return the angles and weights in a run's metrics, averaged over stretches so that at most 400 points remain."""
    fed = [line for line in metrics if "angle" in line and "euclidean_angle" in line]
    if not fed:
        raise ArcmaskError("the run's metrics have no angles: none of its steps used feedback")
    columns = {
        "steps": [float(line["step"]) for line in fed],
        "euclidean": [math.degrees(line["euclidean_angle"]) for line in fed],
        "frechet": [math.degrees(line["angle"]) for line in fed],
        "weight": [float(line["weight"]) for line in fed],
    }
    stretch, tenth = math.ceil(len(fed) / _STRETCHES), max(1, len(fed) // 10)
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
