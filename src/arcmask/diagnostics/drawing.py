"""The figures of the records: each function takes a record and returns a figure. Knows no model."""

from typing import Any

import numpy as np

from arcmask.diagnostics.accuracy import Accuracy
from arcmask.diagnostics.angles import Angles
from arcmask.diagnostics.cost import BlendCosts
from arcmask.diagnostics.karcher import KarcherDistances
from arcmask.diagnostics.norms import Norms, signed
from arcmask.diagnostics.paths import LerpNorms, SpherePaths
from arcmask.diagnostics.training import TrainingAngles
from arcmask.diagnostics.weights import ConfidenceWeights
from arcmask.figures import INK, MASK, MUTED, START, Figure, colour, figure, panels, styled

_EUCLIDEAN, _FRECHET = colour("linear"), colour("spherical")
_DASHED, _DOTTED = (0, (5, 2)), (0, (2, 2))


@styled()
def draw_norms(record: Norms) -> Figure:
    """Norm against rank where frequencies are known, and the distribution of norms beside it."""
    if record.ranks:
        made, (left, right) = panels(8.4, 3.4, 2, width_ratios=(1.8, 1), sharey=True)
        few = len(record.ranks) < 200
        left.scatter(record.ranks, record.norms, s=18 if few else 5, color=_FRECHET, alpha=0.85 if few else 0.45, lw=0)
        if not few:
            middle = [(first * last) ** 0.5 for first, last, _ in record.bins]
            left.plot(middle, [at.median for *_, at in record.bins], color=INK, label="median of the tokens")
        left.axhline(record.mask, color=MASK, lw=1.6, ls=_DASHED, label="the mask")
        found = "none" if record.rank_correlation is None else signed(record.rank_correlation)
        left.set(xscale="log", xlabel="frequency rank", ylabel="norm", title=f"rank correlation {found}")
        left.xaxis.set_major_formatter("{x:,.0f}")
        left.legend(loc="lower left")
    else:
        made, right = figure(4.8, 3.4)
        right.set_ylabel("norm")
    edges = np.array(record.histogram_edges)
    right.barh(edges[:-1], record.histogram_counts, height=np.diff(edges), align="edge", color=_FRECHET, alpha=0.75)
    right.axhline(record.mask, color=MASK, lw=1.6, ls=_DASHED, label="the mask")
    if not record.ranks:
        right.legend(loc="lower right")
    right.set(xlabel="tokens", title=f"coefficient of variation {record.variation:.3f}")
    right.set_ylim(0, 1.12 * max(record.largest, record.mask))
    right.locator_params(axis="x", integer=True)
    return made


@styled()
def draw_angles(record: Angles) -> Figure:
    """Both angles over t: means as lines, the middle 90 % as a band and as dotted lines."""
    made, axes = figure(6.0, 3.6)
    low, mean, high = ([getattr(at, end) for at in record.euclidean] for end in ("low", "mean", "high"))
    axes.fill_between(record.times, low, high, color=_EUCLIDEAN, alpha=0.15, lw=0)
    axes.plot(record.times, mean, color=_EUCLIDEAN, lw=3.2, label="to the Euclidean mean, and the middle 90 %")
    for end in ("low", "high"):
        axes.plot(record.times, [getattr(at, end) for at in record.frechet], color=_FRECHET, lw=1, ls=":")
    label = f"to the Fréchet mean ({record.karcher_steps} Karcher steps)"
    axes.plot(record.times, [at.mean for at in record.frechet], color=_FRECHET, lw=1.4, marker="o", ms=4, label=label)
    axes.set(xlabel="t (share of tokens masked)", ylabel="degrees", title="angle between mask and prediction")
    ends = [end for at in [*record.euclidean, *record.frechet] for end in (at.low, at.high)]
    axes.set_ylim(min(ends) - 0.35 * max(5.0, max(ends) - min(ends)), max(ends) + 2)
    axes.legend(loc="lower left")
    return made


@styled()
def draw_training(record: TrainingAngles) -> Figure:
    """Angles over steps, and the weight beside them."""
    made, (left, right) = panels(8.4, 3.3, 2)
    left.plot(record.steps, record.euclidean, color=_EUCLIDEAN, lw=1.4, label="to the Euclidean mean")
    left.plot(record.steps, record.frechet, color=_FRECHET, lw=1.4, label="to the Fréchet mean")
    low, high = min(record.euclidean + record.frechet), max(record.euclidean + record.frechet)
    room = max(1.0, 0.35 * (high - low))
    left.set(xlabel="step", ylabel="degrees", title="angle to the mask", ylim=(low - room, high + 1.6 * room))
    left.legend(loc="upper right")
    right.plot(record.steps, record.weight, color=_FRECHET, lw=1.4)
    right.set(xlabel="step", title="mean weight", ylim=(0, 1.15 * max(*record.weight, 1e-3)))
    for axes in (left, right):
        axes.locator_params(axis="x", integer=True)
    return made


@styled()
def draw_paths(record: LerpNorms) -> Figure:
    """The norm along LERP's path, and how deep each position's path goes."""
    made, (left, right) = panels(8.4, 3.4, 2, width_ratios=(1.5, 1))
    tokens = record.tokens
    left.axhspan(tokens.low, tokens.high, color=MUTED, alpha=0.14, lw=0, label="tokens (middle 90 %)")
    left.plot([0, 1], [1, 1], color=_FRECHET, label="spherical")
    lows, means, highs = ([getattr(at, end) for at in record.ratio] for end in ("low", "mean", "high"))
    left.plot(record.weights, means, color=_EUCLIDEAN, label="linear (mean, middle 90 %)")
    left.fill_between(record.weights, lows, highs, color=_EUCLIDEAN, alpha=0.15, lw=0)
    left.axvline(record.own_weight, color=MASK, lw=1.2, ls=_DASHED, label="mean weight of the confidence")
    top = 1.08 * max(1.0, tokens.high, *highs)
    left.set(xlabel="weight", ylabel="norm / norm of the mask", title="norm along the path", xlim=(0, 1), ylim=(0, top))
    left.legend(loc="lower left", fontsize=8.5)
    counts = np.array(record.deepest_histogram)
    right.stairs(100 * counts / counts.sum(), record.deepest_edges, color=_EUCLIDEAN, fill=True, alpha=0.75)
    right.axvline(1, color=_FRECHET)
    right.set(xlabel="norm / norm of the mask", ylabel="% of positions", title="lowest point of LERP's path")
    right.set_xlim(0, 1.04)
    return made


@styled()
def draw_sphere(record: SpherePaths) -> Figure:
    """The paths on the sphere, and along them the norm and the angle that is turned."""
    made = Figure(figsize=(9.0, 3.7))
    made.set_layout_engine("none")
    axes = made.add_axes((-0.03, -0.14, 0.58, 1.26), projection="3d")
    grid = made.add_gridspec(2, 1, left=0.585, right=0.98, top=0.92, bottom=0.13, hspace=0.55)
    norm, pace = made.add_subplot(grid[0]), made.add_subplot(grid[1])
    points = {name: np.array(path) for name, path in record.paths.items()}
    _draw_ball(axes, points)
    start = points["spherical"][0]
    for name, path in points.items():
        # One that lies on another curve in both plots is dashed, so that both are seen.
        style: dict[str, Any] = {"ls": (0, (4, 3)), "zorder": 3} if name == "renormalized" else {}
        length = np.linalg.norm(path, axis=1)
        turned = np.degrees(np.arccos(np.clip(path @ start / np.where(length > 0, length, 1.0), -1, 1)))
        norm.plot(record.weights, length, color=colour(name), label=name, **style)
        pace.plot(record.weights, turned, color=colour(name), label=name, **style)
    lowest = min(float(np.linalg.norm(path, axis=1).min()) for path in points.values())
    norm.set(title="norm along the path / norm of the mask", xlim=(0, 1), ylim=(max(0.0, lowest - 0.12), 1.1))
    pace.set(title="angle turned away from the mask, degrees", xlabel="weight", xlim=(0, 1))
    pace.legend(loc="lower right")
    return made


def _draw_ball(axes: Any, points: dict[str, Any]) -> None:
    """The sphere, the chord and the arc, with equal steps of the weight marked."""
    u, v = np.mgrid[0 : 2 * np.pi : 60j, 0 : np.pi : 30j]
    x, y, z = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
    axes.plot_surface(x, y, z, color="#9db4c0", alpha=0.13, linewidth=0)
    axes.plot_wireframe(x, y, z, color=MUTED, alpha=0.12, rcount=9, ccount=13, lw=0.6)
    for name in ("linear", "spherical"):
        path = points[name]
        axes.plot(*path.T, color=colour(name), lw=2.6, zorder=5)
        axes.scatter(*path[:: max(1, len(path) // 6)].T, color=colour(name), s=22, depthshade=False, zorder=6)
    ends = points["spherical"][[0, -1]]
    axes.scatter(*ends.T, color=INK, s=60, depthshade=False, zorder=7)
    for point, label, side in zip(ends, ("[MASK]  ", "  predicted mean"), ("right", "left"), strict=True):
        axes.text(*(1.04 * point), label, color=INK, fontsize=11, ha=side, va="center", zorder=8)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.45)
    axes.view_init(elev=18, azim=10)


@styled()
def draw_confidence(record: ConfidenceWeights) -> Figure:
    """Entropies with the weight as a function of them; and the distribution of weights."""
    made, (left, right) = panels(8.4, 3.5, 2)
    edges, counts = np.array(record.entropy_edges), np.array(record.entropy_histogram)
    share = 100 * counts / counts.sum()
    left.bar(edges[:-1], share, width=np.diff(edges), align="edge", color=colour("none"), alpha=0.6)
    left.set(xlabel="entropy of a prediction, nats", ylabel="% of masked positions", title="entropies, and the weight")
    curve = left.twinx()
    curve.grid(False)
    curve.spines["right"].set_visible(True)
    kinds = [("at step 0", record.start, START), ("of the checkpoint", record.learned, _FRECHET)]
    for label, weights, shade in kinds:
        if weights is None:
            continue
        curve.plot(record.entropy_edges, weights.curve, color=shade, label=label)
        bars = np.array(weights.histogram)
        places = np.array(record.weight_edges)
        heights = 100 * bars / bars.sum()
        right.stairs(heights, places, color=shade, fill=True, alpha=0.25)
        right.stairs(heights, places, color=shade, lw=1.3)
        mean = weights.weight.mean
        right.axvline(mean, color=shade, lw=1.4, ls=_DASHED, label=f"mean {label}: {mean:.3f}")
    tops = [max(weights.curve) for _, weights, _ in kinds if weights is not None]
    curve.set(ylim=(0, 1.15 * max(*tops, 1e-3)), ylabel="weight")
    curve.legend(loc="lower left")
    reach = max(weights.weight.high for _, weights, _ in kinds if weights is not None)
    right.set(xlim=(0, min(1.0, max(0.1, 1.3 * reach, 1.1 * max(tops)))), xlabel="weight", title="weights")
    right.set_ylim(top=1.3 * right.get_ylim()[1])
    right.legend(loc="upper right")
    return made


@styled()
def draw_karcher(record: KarcherDistances) -> Figure:
    """Distance from the converged mean over steps, on a log scale."""
    made, axes = figure(6.0, 3.5)
    floor = 1e-9  # an exact hit has no place on a log scale
    mean = [max(floor, at.mean) for at in record.distance]
    axes.plot(record.steps, mean, color=_FRECHET, marker="o", ms=5, label="mean")
    lows, highs = ([max(floor, getattr(at, end)) for at in record.distance] for end in ("low", "high"))
    axes.fill_between(record.steps, lows, highs, color=_FRECHET, alpha=0.15, lw=0, label="middle 90 %")
    largest = [max(floor, value) for value in record.largest]
    axes.plot(record.steps, largest, color=_FRECHET, lw=1, ls=_DOTTED, label="largest")
    axes.axhline(max(floor, record.euclidean.mean), color=_EUCLIDEAN, lw=1.4, ls=_DASHED, label="Euclidean mean")
    axes.set(yscale="log", xlabel="Karcher steps", ylabel="degrees", title="distance from the converged Fréchet mean")
    axes.set_xticks(record.steps)
    axes.set_ylim(bottom=max(floor / 2, min(mean) / 20))
    axes.legend(loc="best")
    return made


@styled()
def draw_accuracy(record: Accuracy) -> Figure:
    """Shares of right guesses over t."""
    made, axes = figure(6.0, 3.6)
    lines = (
        (f"right one among the {record.top_k} candidates", record.among, {"color": _FRECHET, "ls": _DASHED, "lw": 1.4}),
        ("first candidate", record.top, {"color": _FRECHET}),
        ("most frequent token", record.frequent, {"color": colour("none")}),
    )
    for label, shares, style in lines:
        axes.plot(record.times, [100 * share for share in shares], marker="o", ms=4, label=label, **style)
    top, error = 100 * np.array(record.top), 100 * np.array(record.standard_error)
    axes.fill_between(record.times, top - 2 * error, top + 2 * error, color=_FRECHET, alpha=0.15, lw=0)
    axes.set(xlabel="t (share of tokens masked)", ylabel="% of masked positions", title="how often a guess is right")
    axes.set_ylim(0, min(102.0, 1.3 * 100 * max(*record.among, 0.02)))
    axes.legend(loc="best")
    return made


@styled()
def draw_cost(record: BlendCosts) -> Figure:
    """Bars for each operator: flops and trigonometric calls, counted and by the paper; and time."""
    made, (flops, calls, times) = panels(9.4, 3.0, 3, sharey=True)
    names = list(record.operators)
    costs = [record.operators[name] for name in names]
    places, colours = np.arange(len(names))[::-1], [colour(name) for name in names]
    for axes, counted, paper, title in (
        (flops, [c.flops for c in costs], [c.paper_flops for c in costs], "flops"),
        (calls, [c.trigonometric for c in costs], [c.paper_trigonometric for c in costs], "trigonometric calls"),
        (times, [c.microseconds for c in costs], [None] * len(costs), "microseconds"),
    ):
        axes.barh(places, counted, height=0.55, color=colours)
        known = [(value, place) for value, place in zip(paper, places, strict=True) if value is not None]
        if known:
            values, at = zip(*known, strict=True)
            axes.scatter(values, at, marker="D", s=34, color="white", edgecolor=INK, zorder=4, label="by the paper")
        room = max([*counted, *(value for value, _ in known), 1e-9])
        for value, place in zip(counted, places, strict=True):
            axes.text(value + 0.02 * room, place + 0.36, _short(value), fontsize=8.5, va="center")
        axes.grid(axis="y", visible=False)
        axes.set(title=title, xlim=(0, 1.22 * room))
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,.3g}" if room < 1000 else "{x:,.0f}")
    flops.set_yticks(places, names)
    calls.legend(loc="upper right")
    made.suptitle(
        f"one position: width {record.width}, {record.candidates} candidates, {record.karcher_steps} Karcher steps",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    return made


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
