"""Figures of the geometry: the paths of LERP and SLERP on a sphere, and what `inspect` found of the base."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcmask import figures
from arcmask.report.figure import SIZE, Drawing, legend_below, name_axes
from arcmask.report.folder import Experiment
from arcmask.report.paper import REGIMES

Array = NDArray[np.float64]
_SHOWN = ("linear", "spherical")


def measured_angle(experiment: Experiment | None) -> tuple[float, str]:
    """The angle to draw, in radians, and where it is from: the trainings with spherical feedback, or else the paper."""
    if experiment is not None:
        for (arm, _), training in experiment.trainings.items():
            if experiment.arms[arm].train.get("operator") == "spherical":
                found = [record["angle"] for record in training.records if record.get("angle") is not None]
                if found:
                    label = experiment.arms[arm].label
                    return float(np.mean(found)), f"the mean that \u201c{label}\u201d measured in training"
    assert REGIMES["spherical"].angle is not None
    return math.radians(float(REGIMES["spherical"].angle)), "the one that the paper reports"


def paths(angle: float) -> tuple[Array, dict[str, Array]]:
    """Weights (N,), and for each operator its path (N, 3) from the mask to one candidate at that angle."""
    import torch

    from arcmask.feedback import OPERATORS

    weight = torch.linspace(0, 1, 61, dtype=torch.float64)
    mask = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    target = torch.tensor([math.cos(angle), math.sin(angle), 0.0], dtype=torch.float64)
    candidates, probs = target.expand(len(weight), 1, 3), torch.ones(len(weight), 1, dtype=torch.float64)
    found = {name: OPERATORS[name](mask, candidates, probs, weight).numpy() for name in _SHOWN}
    return weight.numpy(), found


def sphere_figures(experiment: Experiment | None) -> list[Drawing]:
    """The two paths drawn on the sphere, and their norms; every point comes from the library's operators."""
    angle, source = measured_angle(experiment)
    weight, found = paths(angle)
    data = {"angle_degrees": math.degrees(angle), "weight": weight.tolist()}
    data |= {name: path.tolist() for name, path in found.items()}
    return [_sphere(found, angle, source, data), _norms(weight, found, angle, source)]


def _view(points: Array, angle: float) -> tuple[Array, Array]:
    """Where points (N, 3) are seen, (N, 2), and how near they are, (N,); the middle of the arc is in front."""
    half, tilt, roll = angle / 2, math.radians(60), math.radians(-24)
    middle = np.array([math.cos(half), math.sin(half), 0.0])
    along, up = np.array([-math.sin(half), math.cos(half), 0.0]), np.array([0.0, 0.0, 1.0])
    # Seen from well above the plane of the arc, so that the chord lies visibly inside it.
    towards, upwards = math.cos(tilt) * middle + math.sin(tilt) * up, math.sin(tilt) * middle - math.cos(tilt) * up
    flat = np.stack([points @ along, points @ upwards], -1)
    turned = np.array([[math.cos(roll), -math.sin(roll)], [math.sin(roll), math.cos(roll)]])
    return flat @ turned.T, points @ towards


def _sphere(found: dict[str, Array], angle: float, source: str, data: dict[str, Any]) -> Drawing:
    made, axes = figures.figure(*SIZE)
    turn = np.linspace(0, 2 * math.pi, 181)
    axes.fill(np.cos(turn), np.sin(turn), color=figures.GRID, alpha=0.35, lw=0)
    axes.plot(np.cos(turn), np.sin(turn), color=figures.MUTED, lw=0.9)
    for line in _graticule():
        seen, near = _view(line, angle)
        front = np.where(near[:, None] >= 0, seen, np.nan)
        axes.plot(*front.T, color=figures.MUTED, lw=0.5, alpha=0.35)
    for name in _SHOWN:
        seen, _ = _view(found[name], angle)
        label = {"linear": "LERP: the chord", "spherical": "SLERP: the arc"}[name]
        axes.plot(*seen.T, color=figures.colour(name), lw=2.4, label=label, zorder=4)
        axes.plot(*seen[::10].T, color=figures.colour(name), lw=0, marker="o", ms=4, zorder=5)
    ends, _ = _view(found["spherical"][[0, -1]], angle)
    for end in ends:
        axes.plot(*np.stack([np.zeros(2), end], -1), color=figures.MUTED, lw=0.9, ls=(0, (3, 2)), zorder=3)
    axes.plot(0, 0, color=figures.MUTED, marker="o", ms=3)
    axes.plot(*ends.T, color=figures.INK, lw=0, marker="o", ms=6, zorder=6)
    for (x, y), text, side in zip(ends, ("mask", "predicted mean"), ("right", "left"), strict=True):
        axes.annotate(
            text,
            (x, y),
            xytext=(-8 if side == "right" else 8, 4),
            textcoords="offset points",
            ha=side,
            va="center",
            color=figures.INK,
        )
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.02, 1.02), aspect="equal")
    axes.set_axis_off()
    with figures.styled():
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
    caption = (
        f"From the mask to the predicted mean at an angle of {math.degrees(angle):.1f}\u00b0, {source}: LERP leaves "
        "the sphere, SLERP stays on it; the dots are equal steps of the weight."
    )
    return Drawing("sphere", "LERP and SLERP on the sphere", caption, made, data)


def _graticule() -> list[Array]:
    turn = np.linspace(0, 2 * math.pi, 121)
    found = []
    for height in np.deg2rad([-60, -30, 0, 30, 60]):
        flat = np.stack([np.cos(turn), np.sin(turn)], -1) * math.cos(height)
        found.append(np.column_stack([flat, np.full(len(turn), math.sin(height))]))
    for east in np.deg2rad(np.arange(0, 180, 30)):
        found.append(np.stack([np.cos(turn) * math.cos(east), np.cos(turn) * math.sin(east), np.sin(turn)], -1))
    return found


def _norms(weight: Array, found: dict[str, Array], angle: float, source: str) -> Drawing:
    made, axes = figures.figure(*SIZE)
    norms = {name: np.linalg.norm(path, axis=-1) for name, path in found.items()}
    for name, label in (("linear", "LERP"), ("spherical", "SLERP")):
        axes.plot(weight, norms[name], color=figures.colour(name), label=label)
    axes.set(xlim=(0, 1), ylim=(min(0.5, norms["linear"].min()), 1.05))
    name_axes(axes, "Norm along the path", "weight", "norm / norm of the mask")
    legend_below(axes)
    lowest = float(norms["linear"].min())
    caption = (
        f"At {math.degrees(angle):.1f}\u00b0, {source}, LERP shrinks the embedding to {lowest:.3f} of the mask\u2019s "
        "norm half way between two vectors of equal norm; SLERP keeps it."
    )
    data = {"angle_degrees": math.degrees(angle), "weight": weight.tolist()}
    data |= {name: values.tolist() for name, values in norms.items()}
    return Drawing("path-norm", "Norm along the path", caption, made, data)


def norm_figure(found: dict[str, Any]) -> Drawing | None:
    """Norm against frequency rank, from the norms.json of `arcmask inspect`; None without frequencies."""
    if not found.get("ranks"):
        return None
    made, axes = figures.figure(*SIZE)
    axes.plot(found["ranks"], found["norms"], color=figures.colour("spherical"), lw=0, marker="o", ms=2.5, alpha=0.5)
    if found.get("bins"):
        middles = [math.sqrt(first * last) for first, last, _ in found["bins"]]
        medians = [spread["median"] for _, _, spread in found["bins"]]
        axes.plot(middles, medians, color=figures.INK, lw=1.6, label="median")
    axes.axhline(found["mask"], color=figures.MASK, lw=1.4, ls=(0, (5, 2)), label="the mask")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * max(*found["norms"], found["mask"]))
    name_axes(axes, "Norm of the embedding against frequency rank", "frequency rank", "norm")
    legend_below(axes)
    caption = f"Each point is a token of the base, the most frequent at the left. {found['reading']}"
    return Drawing("norm-rank", "Norm against frequency rank", caption, made, found)
