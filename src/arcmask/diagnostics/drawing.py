"""Draw the records of the diagnostics as figures. This module knows no model."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from arcmask.diagnostics.cost import BlendCosts
from arcmask.diagnostics.curves import TrainingAngles, draw_curves
from arcmask.diagnostics.gain import GainCurve
from arcmask.diagnostics.generation import GenerationCurve
from arcmask.diagnostics.masked_positions import Accuracy, Angles, ConfidenceWeights, KarcherDistances
from arcmask.diagnostics.norms import LerpNorms, Norms, SpherePaths, signed
from arcmask.diagnostics.predictions import Spread
from arcmask.feedback import OPERATORS, find_operator
from arcmask.figures import INK, MASK, MUTED, START, Axes, Figure, colour, figure, panels, styled

_EUCLIDEAN, _FRECHET = colour("linear"), colour("spherical")  # the two means have the colours of their operators
_DASHED, _DOTTED = (0, (5, 2)), (0, (2, 2))


def _gain(record: GainCurve) -> Figure:
    """Draw the change of the bound over weights and over the angle turned, and over t at each best weight."""
    canvas, (weights, turns, times) = panels(10.4, 3.6, 3, sharey=False)
    middles = [(low + high) / 2 for low, high in pairwise(record.time_edges)]
    for number, (name, row) in enumerate(record.difference.items()):
        look: dict[str, Any] = {"color": colour(name), "lw": 1.6, "marker": "o", "ms": 3.5}
        half, best = np.array(record.half_width[name]), record.best[name]
        weights.fill_between(record.weights, row - half, row + half, color=colour(name), alpha=0.13, lw=0)
        weights.plot(record.weights, row, label=find_operator(name).label, **look)
        turns.plot(record.angle[name], row, **look)
        by_time, halves = record.difference_by_time[name][best], record.half_width_by_time[name][best]
        shift = 0.02 * (number - (len(record.difference) - 1) / 2)  # so that intervals do not hide each other
        for middle, value, width in zip(middles, by_time, halves, strict=True):
            if value is not None:
                times.errorbar(middle + shift, value, width or 0, color=colour(name), fmt="o", ms=4, lw=1.4)
    for axes, x, title in (
        (weights, "weight", "bound with feedback minus plain bound"),
        (turns, "degrees by which the mask is turned", "the same, at equal turn"),
        (times, "t (fraction of tokens masked)", "by t, at each operator's best weight"),
    ):
        axes.axhline(0, color=INK, lw=1)
        axes.set(xlabel=x, title=title)
    times.set_xticks(record.time_edges)
    gain = -min(map(min, record.difference.values()))
    if gain > 0:  # large weights can cost many times what small ones gain
        highest = min(max(map(max, record.difference.values())), 4 * gain)
        for axes in (weights, turns):
            axes.set_ylim(-2.2 * gain, 1.1 * highest)
    weights.set_ylabel("nats per token (below 0: feedback helps)")
    _legend_below(canvas, weights, columns=5)
    return canvas


def _generation(record: GenerationCurve) -> Figure:
    """Draw quality against entropy: each operator over weights, and plain sampling over temperatures."""
    canvas, axes = figure(6.4, 4.2)
    plain = ("none", "plain sampling, over temperatures", record.plain)
    operators = [(name, f"{find_operator(name).label}, over weights", row) for name, row in record.operators.items()]
    for name, label, points in (plain, *operators):
        line = points if name == "none" else [record.plain[0], *points]  # the weight 0 is plain sampling
        entropies, qualities = [at.entropy for at in line], [at.quality for at in line]
        axes.plot(entropies, qualities, color=colour(name), lw=1.6, ls=_DASHED if name == "none" else "-", label=label)
        for at in points:
            axes.errorbar(at.entropy, at.quality, at.quality_half_width, color=colour(name), fmt="o", ms=4.5, lw=1)
            axes.annotate(
                f"{at.setting:g}", (at.entropy, at.quality), xytext=(5, 3), textcoords="offset points", fontsize=7.5,
                color=colour(name),
            )  # fmt: skip
    axes.set(xlabel="entropy of a sample, nats", ylabel=record.quality)
    axes.set_title(f"quality against entropy ({record.samples} samples, T = {record.steps})")
    if record.better == "lower":
        axes.invert_yaxis()
    _legend_below(canvas, axes, columns=2)
    return canvas


def _legend_below(canvas: Figure, axes: Axes, columns: int) -> None:
    look: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "ncols": columns}
    canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", **look)


def _norms(record: Norms) -> Figure:
    """Draw norms against rank where frequencies are known, and the distribution of norms."""
    width, ratios = (8.4, (1.8, 1)) if record.ranks else (4.8, (1,))
    canvas, (first, *others) = panels(width, 3.4, len(ratios), width_ratios=ratios, sharey=True)
    if record.ranks:
        _norms_by_rank(first, record)
    last = [first, *others][-1]
    edges = np.array(record.histogram_edges)
    last.barh(edges[:-1], record.histogram_counts, height=np.diff(edges), align="edge", color=_FRECHET, alpha=0.75)
    last.set(xlabel="tokens", title=f"coefficient of variation {record.variation:.3f}")
    last.set_ylim(0, 1.12 * max(record.largest, record.mask))
    last.locator_params(axis="x", integer=True)
    for axes in (first, *others):
        axes.axhline(record.mask, color=MASK, lw=1.6, ls=_DASHED, label="mask")
    first.set_ylabel("norm")
    first.legend(loc="lower left" if record.ranks else "lower right")
    return canvas


def _norms_by_rank(axes: Axes, record: Norms) -> None:
    size, alpha = (18, 0.85) if len(record.ranks) < 200 else (5, 0.45)
    axes.scatter(record.ranks, record.norms, s=size, color=_FRECHET, alpha=alpha, lw=0)
    if len(record.ranks) >= 200:
        middle = [(first * last) ** 0.5 for first, last, _ in record.bins]
        axes.plot(middle, [at.median for *_, at in record.bins], color=INK, label="median of the tokens")
    correlation = "undefined" if record.rank_correlation is None else signed(record.rank_correlation)
    axes.set(xscale="log", xlabel="frequency rank", title=f"rank correlation {correlation}")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _band(axes: Axes, x: Sequence[float], spreads: Sequence[Spread], shade: str, label: str | None = None) -> None:
    """Fill the middle 90 % of distributions along x."""
    low, high = [at.low for at in spreads], [at.high for at in spreads]
    axes.fill_between(x, low, high, color=shade, alpha=0.15, lw=0, label=label)


def _angles(record: Angles) -> Figure:
    """Draw both angles over t: means as lines, the middle 90 % as a band and as dotted lines."""
    canvas, axes = figure(6.0, 3.6)
    euclidean = [at.mean for at in record.euclidean]
    axes.plot(record.times, euclidean, color=_EUCLIDEAN, lw=3.2, label="to the Euclidean mean, and the middle 90 %")
    _band(axes, record.times, record.euclidean, _EUCLIDEAN)
    for end in ("low", "high"):
        axes.plot(record.times, [getattr(at, end) for at in record.frechet], color=_FRECHET, lw=1, ls=":")
    label = f"to the Fréchet mean ({record.karcher_steps} Karcher steps)"
    axes.plot(record.times, [at.mean for at in record.frechet], color=_FRECHET, lw=1.4, marker="o", ms=4, label=label)
    axes.set(xlabel="t (fraction of tokens masked)", ylabel="degrees", title="angle between mask and prediction")
    ends = [end for at in [*record.euclidean, *record.frechet] for end in (at.low, at.high)]
    axes.set_ylim(min(ends) - 0.35 * max(5.0, max(ends) - min(ends)), max(ends) + 2)
    axes.legend(loc="lower left")
    return canvas


def _training(record: TrainingAngles) -> Figure:
    """Draw the angles and the weight over the steps of one run."""
    canvas, (left, right) = panels(8.4, 3.3, 2)
    for axes, values, label, shade in (
        (left, record.euclidean, "to the Euclidean mean", _EUCLIDEAN),
        (left, record.frechet, "to the Fréchet mean", _FRECHET),
        (right, record.weight, "weight", _FRECHET),
    ):
        draw_curves(axes, [dict(zip(record.steps, values, strict=True))], label, colour=shade)
        axes.set_xlabel("training step")
        axes.locator_params(axis="x", integer=True)
    low, high = min(record.euclidean + record.frechet), max(record.euclidean + record.frechet)
    room = max(1.0, 0.35 * (high - low))
    left.set(ylabel="degrees", title="angle to the mask", ylim=(low - room, high + 1.6 * room))
    left.legend(loc="upper right")
    right.set(title="mean weight", ylim=(0, 1.15 * max(*record.weight, 1e-3)))
    return canvas


def _paths(record: LerpNorms) -> Figure:
    """Draw the norm along LERP's path, and the distribution of each path's lowest point."""
    canvas, (left, right) = panels(8.4, 3.4, 2, width_ratios=(1.5, 1))
    tokens = record.tokens
    left.axhspan(tokens.low, tokens.high, color=MUTED, alpha=0.14, lw=0, label="tokens (middle 90 %)")
    left.axhline(1, color=INK, lw=1.4, label="operators that keep the norm")
    means = [at.mean for at in record.ratio]
    left.plot(record.weights, means, color=_EUCLIDEAN, label=f"{OPERATORS['linear'].label} (mean, middle 90 %)")
    _band(left, record.weights, record.ratio, _EUCLIDEAN)
    left.axvline(record.own_weight, color=MASK, lw=1.2, ls=_DASHED, label="mean weight of the confidence")
    top = 1.08 * max(1.0, tokens.high, *(at.high for at in record.ratio))
    left.set(xlabel="weight", ylabel="norm / norm of the mask", title="norm along the path", xlim=(0, 1), ylim=(0, top))
    left.legend(loc="lower left", fontsize=8.5)
    counts = np.array(record.deepest_histogram)
    right.stairs(100 * counts / counts.sum(), record.deepest_edges, color=_EUCLIDEAN, fill=True, alpha=0.75)
    right.axvline(1, color=INK, lw=1.4)
    right.set(xlabel="norm / norm of the mask", ylabel="% of positions", title="lowest point of LERP's path")
    right.set_xlim(0, 1.04)
    return canvas


def _sphere(record: SpherePaths) -> Figure:
    """Draw every operator's path on the sphere, its norm, and the angle that it turns away from the mask."""
    canvas = Figure(figsize=(9.0, 3.9))
    canvas.set_layout_engine("none")
    ball: Any = canvas.add_axes((-0.03, -0.14, 0.58, 1.26), projection="3d")
    grid = canvas.add_gridspec(2, 1, left=0.585, right=0.98, top=0.92, bottom=0.27, hspace=0.65)
    norm, pace = canvas.add_subplot(grid[0]), canvas.add_subplot(grid[1])
    points = {name: np.array(path) for name, path in record.paths.items()}
    start = next(iter(points.values()))[0]
    # Paths can coincide: each line is thinner than those below it, so that all are visible.
    widths = np.linspace(4.2, 1.2, len(points))
    lowest = 1.0
    _draw_ball(ball)
    for (name, path), width in zip(points.items(), widths, strict=True):
        look = {"color": colour(name), "lw": width}
        length = np.linalg.norm(path, axis=1)
        lowest = min(lowest, float(length.min()))
        turned = np.degrees(np.arccos(np.clip(path @ start / np.where(length > 0, length, 1.0), -1, 1)))
        norm.plot(record.weights, length, **look)
        pace.plot(record.weights, turned, label=OPERATORS[name].label, **look)
        ball.plot(*path.T, zorder=5, **look)
        dots = path[:: max(1, len(path) // 6)]
        ball.scatter(*dots.T, color=colour(name), s=(width + 2.5) ** 2, depthshade=False, zorder=6)
    farthest = max((path[-1] for path in points.values()), key=np.linalg.norm)
    for point, label, side in ((start, "[MASK]  ", "right"), (farthest, "  predicted mean", "left")):
        ball.scatter(*point, color=INK, s=60, depthshade=False, zorder=7)
        ball.text(*(1.04 * point), label, color=INK, fontsize=11, ha=side, va="center", zorder=8)
    norm.set(title="norm along the path / norm of the mask", xlim=(0, 1), ylim=(max(0.0, lowest - 0.12), 1.1))
    pace.set(title="angle turned away from the mask, degrees", xlabel="weight", xlim=(0, 1))
    pace.legend(loc="upper center", bbox_to_anchor=(0.45, -0.42), ncols=2, frameon=False, fontsize=8)
    return canvas


def _draw_ball(axes: Any) -> None:
    u, v = np.mgrid[0 : 2 * np.pi : 60j, 0 : np.pi : 30j]
    x, y, z = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
    axes.plot_surface(x, y, z, color="#9db4c0", alpha=0.13, linewidth=0)
    axes.plot_wireframe(x, y, z, color=MUTED, alpha=0.12, rcount=9, ccount=13, lw=0.6)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.45)
    axes.view_init(elev=18, azim=10)


def _confidence(record: ConfidenceWeights) -> Figure:
    """Draw entropies with the weight as a function of them, and the distribution of weights."""
    canvas, (left, right) = panels(8.4, 3.5, 2)
    edges, counts = np.array(record.entropy_edges), np.array(record.entropy_histogram)
    left.bar(edges[:-1], 100 * counts / counts.sum(), np.diff(edges), align="edge", color=colour("none"), alpha=0.6)
    left.set(xlabel="entropy of a prediction, nats", ylabel="% of masked positions", title="entropies, and the weight")
    curve = left.twinx()
    curve.grid(False)
    curve.spines["right"].set_visible(True)
    kinds = [("at step 0", record.start, START)]
    if record.learned is not None:
        kinds.append(("of the checkpoint", record.learned, _FRECHET))
    for label, weights, shade in kinds:
        curve.plot(record.entropy_edges, weights.curve, color=shade, label=label)
        heights = 100 * np.array(weights.histogram) / sum(weights.histogram)
        right.stairs(heights, record.weight_edges, color=shade, fill=True, alpha=0.25)
        right.stairs(heights, record.weight_edges, color=shade, lw=1.3)
        mean = weights.weight.mean
        right.axvline(mean, color=shade, lw=1.4, ls=_DASHED, label=f"mean {label}: {mean:.3f}")
    top = max(max(weights.curve) for _, weights, _ in kinds)
    curve.set(ylim=(0, 1.15 * max(top, 1e-3)), ylabel="weight")
    curve.legend(loc="lower left")
    reach = max(weights.weight.high for _, weights, _ in kinds)
    right.set(xlim=(0, min(1.0, max(0.1, 1.3 * reach, 1.1 * top))), xlabel="weight", title="weights")
    right.set_ylim(top=1.3 * right.get_ylim()[1])
    right.legend(loc="upper right")
    return canvas


def _karcher(record: KarcherDistances) -> Figure:
    """Draw the distance from the converged mean over steps, on a log scale."""
    canvas, axes = figure(6.0, 3.5)
    floor = 1e-9  # a log scale has no zero
    mean, low, high = (np.maximum(floor, [getattr(at, k) for at in record.distance]) for k in ("mean", "low", "high"))
    axes.plot(record.steps, mean, color=_FRECHET, marker="o", ms=5, label="mean")
    axes.fill_between(record.steps, low, high, color=_FRECHET, alpha=0.15, lw=0, label="middle 90 %")
    axes.plot(record.steps, np.maximum(floor, record.largest), color=_FRECHET, lw=1, ls=_DOTTED, label="largest")
    axes.axhline(max(floor, record.euclidean.mean), color=_EUCLIDEAN, lw=1.4, ls=_DASHED, label="Euclidean mean")
    axes.set(yscale="log", xlabel="Karcher steps", ylabel="degrees", title="distance from the converged Fréchet mean")
    axes.set_xticks(record.steps)
    axes.set_ylim(bottom=max(floor / 2, mean.min() / 20))
    axes.legend(loc="best")
    return canvas


def _accuracy(record: Accuracy) -> Figure:
    """Draw the fraction of right guesses over t."""
    canvas, axes = figure(6.0, 3.6)
    lines: tuple[tuple[str, list[float], dict[str, Any]], ...] = (
        (f"one of the {record.top_k} candidates", record.among, {"color": _FRECHET, "ls": _DASHED, "lw": 1.4}),
        ("first candidate", record.top, {"color": _FRECHET}),
        ("most frequent token", record.frequent, {"color": colour("none")}),
    )
    for label, shares, look in lines:
        axes.plot(record.times, 100 * np.array(shares), marker="o", ms=4, label=label, **look)
    top, error = 100 * np.array(record.top), 100 * np.array(record.standard_error)
    axes.fill_between(record.times, top - 2 * error, top + 2 * error, color=_FRECHET, alpha=0.15, lw=0)
    axes.set(xlabel="t (fraction of tokens masked)", ylabel="% of masked positions", title="how often a guess is right")
    axes.set_ylim(0, min(102.0, 1.3 * 100 * max(*record.among, 0.02)))
    axes.legend(loc="best")
    return canvas


def _cost(record: BlendCosts) -> Figure:
    """Draw bars for each operator: flops and trigonometric calls, counted and by the paper, and time."""
    costs = record.operators
    canvas, (flops, calls, times) = panels(9.4, 1.2 + 0.45 * len(costs), 3, sharey=True)
    rows = np.arange(len(costs))[::-1]
    for axes, key, title in (
        (flops, "flops", "flops"),
        (calls, "trigonometric", "trigonometric calls"),
        (times, "microseconds", "microseconds"),
    ):
        counted = [getattr(cost, key) for cost in costs.values()]
        paper = [getattr(cost, f"paper_{key}", None) for cost in costs.values()]
        known = [(value, row) for value, row in zip(paper, rows, strict=True) if value is not None]
        axes.barh(rows, counted, height=0.55, color=[colour(name) for name in costs])
        for value, row in zip(counted, rows, strict=True):
            axes.text(value, row + 0.36, f" {_short(value)}", fontsize=8.5, va="center")
        for value, row in known:
            axes.scatter(value, row, marker="D", s=34, color="white", edgecolor=INK, zorder=4)
        room = max([*counted, *(value for value, _ in known), 1e-9])
        axes.grid(axis="y", visible=False)
        axes.set(title=title, xlim=(0, 1.22 * room))
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,.3g}" if room < 1000 else "{x:,.0f}")
    flops.set_yticks(rows, [OPERATORS[name].label for name in costs])
    sizes = f"width {record.width}, {record.candidates} candidates, {record.karcher_steps} Karcher steps"
    canvas.suptitle(f"one position: {sizes}; diamonds are the paper's formulas", fontsize=10, x=0.01, ha="left")
    return canvas


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


_DRAW: dict[type, Callable[[Any], Figure]] = {
    GainCurve: _gain,
    GenerationCurve: _generation,
    Norms: _norms,
    Angles: _angles,
    TrainingAngles: _training,
    LerpNorms: _paths,
    SpherePaths: _sphere,
    ConfidenceWeights: _confidence,
    KarcherDistances: _karcher,
    Accuracy: _accuracy,
    BlendCosts: _cost,
}


def draw(record: Any) -> Figure:
    """Draw the record of any diagnostic."""
    with styled():
        return _DRAW[type(record)](record)
