"""Figures of generation: each score against the budget with its interval, and the paired differences."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from arcmask import figures
from arcmask.report.comparisons import Comparison, pairs
from arcmask.report.figure import SIZE, Drawing, Look, legend_below, looks, name_axes
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import MEANS, paper_arm
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.wording import count


def score_figures(experiment: Experiment) -> list[Drawing]:
    """One for each of the main scores that the experiment has."""
    return [_against_budget(experiment, quantity) for quantity in quantities(experiment, MAIN)]


def score_points(experiment: Experiment, quantity: Quantity, arm: Arm) -> list[dict[str, Any]]:
    """What is drawn of an arm: at each budget the mean, and its interval with what it is over."""
    found = []
    for budget in experiment.budgets:
        at = point(experiment, quantity, arm.name, budget)
        if at is not None:
            told = {"budget": budget, "mean": at.summary.mean, "interval": at.interval, "interval_over": at.over}
            found.append(told | {"seeds": at.seeds})
    return found


def _against_budget(experiment: Experiment, quantity: Quantity) -> Drawing:
    arms = list(experiment.arms.values())
    style = looks(arms)
    made, axes = figures.figure(*SIZE)
    data: dict[str, Any] = {"score": quantity.score, **dict(quantity.depends), "arms": {}}
    for place, arm in enumerate(arms):
        points = score_points(experiment, quantity, arm)
        if not points:
            continue
        shift = 1.0 + 0.05 * (place - (len(arms) - 1) / 2)  # so that intervals do not hide each other
        _draw_points(axes, points, style[arm.name], arm.label, shift)
        data["arms"][arm.name] = {"label": arm.label, "points": points}
        theirs = _paper_points(experiment, quantity, arm)
        if theirs:
            data["arms"][arm.name]["paper"] = theirs
            _draw_paper(axes, theirs, style[arm.name], shift)
    _budget_axis(axes, experiment.budgets)
    name_axes(axes, quantity.label, "denoising steps T", quantity.heading)
    legend_below(axes)
    caption = (
        f"{quantity.kind.meaning[0].upper()}{quantity.kind.meaning[1:]}{_by(quantity)}, against the number of "
        f"denoising steps T; points are means over seeds, bars their 95 % intervals"
        + (", hollow points what the paper prints." if any("paper" in arm for arm in data["arms"].values()) else ".")
    )
    if any(p["interval_over"] == "samples" for arm in data["arms"].values() for p in arm["points"]):
        caption += " With one seed the bar is the bootstrap interval over its samples."
    return Drawing(quantity.slug, f"{quantity.label} against budget", caption, made, data)


def _by(quantity: Quantity) -> str:
    return f" {quantity.note}" if quantity.score == "generative_perplexity" else ""


def _draw_points(axes: Axes, points: list[dict[str, Any]], look: Look, label: str, shift: float) -> None:
    x = [p["budget"] * shift for p in points]
    y = [p["mean"] for p in points]
    axes.plot(x, y, color=look.colour, ls=look.dashes, lw=1.5, marker=look.marker, ms=5.5, label=label)
    for at, p in zip(x, points, strict=True):
        if p["interval"] is not None:
            axes.vlines(at, *p["interval"], color=look.colour, lw=1.4)


def _paper_points(experiment: Experiment, quantity: Quantity, arm: Arm) -> list[dict[str, Any]]:
    if not experiment.is_paper:
        return []
    theirs = paper_arm(arm.train) or ""
    found = [(budget, MEANS.get((theirs, budget, quantity.score))) for budget in experiment.budgets]
    return [{"budget": budget, "mean": p.mean, "half_width": p.half_width} for budget, p in found if p is not None]


def _draw_paper(axes: Axes, points: list[dict[str, Any]], look: Look, shift: float) -> None:
    x, y = [p["budget"] * shift * 1.06 for p in points], [p["mean"] for p in points]
    axes.plot(x, y, color=look.colour, lw=0, marker=look.marker, ms=5.5, mfc="none", alpha=0.9)
    for at, p in zip(x, points, strict=True):
        if p["half_width"] is not None:
            low, high = p["mean"] - p["half_width"], p["mean"] + p["half_width"]
            axes.vlines(at, low, high, color=look.colour, lw=0.9, ls=(0, (2, 1.5)))


def _budget_axis(axes: Axes, budgets: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(budgets[0] / 1.25, budgets[-1] * 1.25)


def difference_figures(experiment: Experiment, found: list[Comparison]) -> list[Drawing]:
    """For each score, every pair's difference at every budget with its interval."""
    by_label: dict[str, list[Comparison]] = {}
    for comparison in found:
        if comparison.budget is not None:
            by_label.setdefault(comparison.label, []).append(comparison)
    return [_differences(experiment, label, mine) for label, mine in by_label.items()]


def _differences(experiment: Experiment, label: str, found: list[Comparison]) -> Drawing:
    shown = [pair for pair in pairs(experiment) if any(c.pair == pair for c in found)]
    style, rows = looks(list(experiment.arms.values())), []
    lines = len(experiment.budgets) + 2  # of a pair: its name, a line for each budget, and a gap
    made, axes = figures.figure(SIZE[0], 0.9 + 0.17 * lines * len(shown))
    for place, pair in enumerate(shown):
        top = -place * lines
        behind = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.0}  # so that no line runs through the words
        where = axes.get_yaxis_transform()
        axes.text(0.0, top, pair.label, transform=where, va="center", fontsize=8.5, color=figures.INK, bbox=behind)
        mine = [c for c in found if c.pair == pair]
        _draw_pair(axes, mine, top - 1, style[pair.first.name], experiment.budgets)
        rows += [_pair_data(c) for c in mine]
    axes.axvline(0, color=figures.MUTED, lw=1, zorder=0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(1 - lines * len(shown), 1)
    name_axes(axes, f"{label}: paired differences", f"difference in {label}")
    budgets = ", ".join(str(budget) for budget in experiment.budgets)
    caption = (
        f"First arm minus second, seed by seed, from top to bottom at T = {budgets}; bars are 95 % intervals of "
        f"{count(max(c.difference.n for c in found), 'seed')}, and one that crosses zero shows no difference."
    )
    better = found[0].better
    if better is not None:
        caption += f" The first arm is better to the {'left' if better == 'lower' else 'right'} of the line."
    slug = "".join(letter if letter.isalnum() else "-" for letter in label.lower()).strip("-").replace("--", "-")
    return Drawing(f"differences-{slug}", f"{label}: paired differences", caption, made, {"rows": rows})


def _draw_pair(axes: Axes, found: list[Comparison], y: int, look: Look, budgets: list[int]) -> None:
    for comparison in found:
        assert comparison.budget is not None
        at = y - budgets.index(comparison.budget)
        difference = comparison.difference
        if difference.half_width is not None:
            low, high = difference.mean - difference.half_width, difference.mean + difference.half_width
            axes.hlines(at, low, high, color=look.colour, lw=1.6)
        axes.plot(difference.mean, at, color=look.colour, marker=look.marker, ms=5)
        axes.annotate(
            f"T = {comparison.budget}", (1.0, at), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=7.5, color=figures.MUTED,
        )  # fmt: skip


def _pair_data(comparison: Comparison) -> dict[str, Any]:
    difference = comparison.difference
    names = {"first": comparison.pair.first.name, "second": comparison.pair.second.name, "budget": comparison.budget}
    return names | {"mean": difference.mean, "half_width": difference.half_width, "n": difference.n}
