"""Draw the scores of generated samples against the budget."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from arcmask import figures
from arcmask.report.figure import SIZE, Drawing, Look, legend_below, looks, name_axes
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import MEANS, paper_arm
from arcmask.report.quantities import MAIN, Quantity, point, quantities

Points = list[dict[str, Any]]


def score_figures(experiment: Experiment) -> list[Drawing]:
    """Return a figure for each of the main scores that the experiment has."""
    return [_against_budget(experiment, quantity) for quantity in quantities(experiment, MAIN)]


def _against_budget(experiment: Experiment, quantity: Quantity) -> Drawing:
    arms = list(experiment.arms.values())
    style = looks(arms)
    canvas, axes = figures.figure(*SIZE)
    by_arm: dict[str, dict[str, Any]] = {}
    for number, arm in enumerate(arms):
        points, paper = _points(experiment, quantity, arm), _paper_points(experiment, quantity, arm)
        if not points:
            continue
        shift = 1.0 + 0.05 * (number - (len(arms) - 1) / 2)  # so that intervals do not hide each other
        look = style[arm.name]
        _draw_points(axes, points, look, shift, ls=look.dashes, lw=1.5, label=arm.label)
        by_arm[arm.name] = {"label": arm.label, "points": points}
        if paper:
            _draw_points(axes, paper, look, 1.06 * shift, lw=0, mfc="none", alpha=0.9)
            by_arm[arm.name]["paper"] = paper
    _budget_axis(axes, experiment.budgets)
    name_axes(axes, quantity.label, "denoising steps T", quantity.heading)
    legend_below(axes)
    data = {"score": quantity.score, **dict(quantity.depends), "arms": by_arm}
    caption = _caption(quantity, list(by_arm.values()))
    return Drawing(quantity.slug, f"{quantity.label} against budget", caption, canvas, data)


def _caption(quantity: Quantity, drawn: Points) -> str:
    meaning, note = quantity.kind.meaning, quantity.note if quantity.score == "generative_perplexity" else ""
    caption = (
        f"{' '.join([meaning[0].upper() + meaning[1:], note]).strip()}, against the number of denoising steps T. "
        "Points are means over seeds, bars their 95 % confidence intervals."
    )
    if any("paper" in arm for arm in drawn):
        caption += " Hollow points are the paper\u2019s values."
    if any(at["interval_over"] == "samples" for arm in drawn for at in arm["points"]):
        caption += " With one seed, the bar is the bootstrap interval over its samples."
    return caption


def _points(experiment: Experiment, quantity: Quantity, arm: Arm) -> Points:
    """Return an arm's mean and interval at each budget that has scores."""
    points = []
    for budget in experiment.budgets:
        at = point(experiment, quantity, arm.name, budget)
        if at is not None:
            interval = {"interval": at.interval, "interval_over": at.over, "seeds": at.seeds}
            points.append({"budget": budget, "mean": at.summary.mean} | interval)
    return points


def _paper_points(experiment: Experiment, quantity: Quantity, arm: Arm) -> Points:
    name = paper_arm(arm.train) if experiment.is_paper else None
    printed = {budget: MEANS.get((name or "", budget, quantity.score)) for budget in experiment.budgets}
    return [{"budget": budget, "mean": p.mean, "half_width": p.half_width} for budget, p in printed.items() if p]


def _draw_points(axes: Axes, points: Points, look: Look, shift: float, **line: Any) -> None:
    x, y = [at["budget"] * shift for at in points], [at["mean"] for at in points]
    axes.plot(x, y, color=look.colour, marker=look.marker, ms=5.5, **line)
    for position, at in zip(x, points, strict=True):
        half = at.get("half_width")  # of the paper's points
        if half is not None:
            ends = at["mean"] - half, at["mean"] + half
            axes.vlines(position, *ends, color=look.colour, lw=0.9, ls=(0, (2, 1.5)))
        elif at.get("interval") is not None:
            axes.vlines(position, *at["interval"], color=look.colour, lw=1.4)


def _budget_axis(axes: Axes, budgets: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(budgets[0] / 1.25, budgets[-1] * 1.25)
