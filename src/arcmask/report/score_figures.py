"""Draw the scores of samples: against the budget, and the paired differences between arms."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from arcmask import figures
from arcmask.report.comparisons import Comparison, Pair, by_second, headlines, main_pairs, pairs
from arcmask.report.figure import SIZE, Drawing, Look, legend_below, looks, name_axes
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import MEANS, paper_arm
from arcmask.report.quantities import HEADLINES, MAIN, Quantity, point, quantities
from arcmask.report.wording import count, listed, slug

Points = list[dict[str, Any]]
_LINE = 0.17  # inches
_TEXT: dict[str, Any] = {
    "va": "center",
    "fontsize": 9,
    "color": figures.INK,
    "bbox": {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.0},  # so that no line crosses the text
}


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


def forest_plot(experiment: Experiment, compared: list[Comparison]) -> list[Drawing]:
    """Return one figure with a panel for each main quantity and a row for each pair; none without comparisons."""
    columns = list(headlines(experiment, compared).values())
    if not columns:
        return []
    shown = {row.pair for column in columns for row in column}
    names, lines = _arrange([pair for pair in main_pairs(experiment) if pair in shown])
    height = -min(lines.values()) + 1
    canvas, panels = figures.panels(SIZE[0], 1.1 + _LINE * height, len(columns), sharey=True)
    style = looks(list(experiment.arms.values()))
    for axes, column in zip(panels, columns, strict=True):
        for row in column:
            _draw_row(axes, row, lines[row.pair], style[row.pair.first.name], HEADLINES[row.score].scale)
        _finish_panel(axes, column[0], ticks=2 if len(columns) > 3 else 3)
        axes.set_ylim(-height, 0.7)
    panels[0].set_zorder(1)  # the names reach across all panels
    for line, (text, weight) in names.items():
        name = panels[0].text(0.0, line, text, transform=panels[0].get_yaxis_transform(), weight=weight, **_TEXT)
        name.set_in_layout(False)
    title = "Paired differences in the main quantities"
    data = {"rows": [_row_data(row) | {"score": row.score} for column in columns for row in column]}
    return [Drawing("forest", title, _forest_caption(columns, experiment), canvas, data)]


def _arrange(shown: list[Pair]) -> tuple[dict[float, tuple[str, str]], dict[Pair, float]]:
    """Return the names by line with the weight of their font, and the line of each pair, from 0 downwards."""
    names, lines, line = dict[float, tuple[str, str]](), dict[Pair, float](), 0.0
    for second, group in by_second(shown):
        names[line] = f"against {second.label}", "bold"
        for pair in group:
            names[line - 1] = pair.first.label, "normal"
            lines[pair] = line - 2
            line -= 2
        line -= 1.6
    return names, lines


def _draw_row(axes: Axes, row: Comparison, y: float, look: Look, scale: float = 1.0) -> None:
    """Draw a difference and its interval; the point is hollow unless the interval excludes zero."""
    mean, half = scale * row.difference.mean, row.difference.half_width
    if half is not None:
        axes.hlines(y, mean - scale * half, mean + scale * half, color=look.colour, lw=1.6)
    is_seen = row.reading not in ("no difference seen", "no interval")
    axes.plot(mean, y, color=look.colour, marker=look.marker, ms=5, mfc=look.colour if is_seen else "#ffffff")


def _finish_panel(axes: Axes, row: Comparison, ticks: int) -> None:
    """Set the zero line, the title and the better side of a panel; `row` is any of its comparisons."""
    headline = HEADLINES[row.score]
    under = ", ".join(part for part in (headline.unit, "" if row.budget is None else f"T = {row.budget}") if part)
    axes.axvline(0, color=figures.MUTED, lw=1, zorder=0)
    axes.set_title(f"{headline.title}\n{under}", loc="left", fontsize=9.5, color=figures.INK)
    axes.set_xlabel("\u2190 better" if row.better == "lower" else "better \u2192", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(ticks))
    axes.margins(x=0.12)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.patch.set_visible(False)


def _forest_caption(columns: list[list[Comparison]], experiment: Experiment) -> str:
    rows = [row for column in columns for row in column]
    caption = "Each row is an arm minus the arm in bold above it, at equal seed. "
    if any(row.difference.half_width is not None for row in rows):
        seeds = count(max(row.difference.n for row in rows), "seed")
        caption += (
            f"Bars are 95 % confidence intervals (Student\u2019s t over {seeds}); a hollow point has an interval that "
            "contains zero. "
        )
    evaluators = [column[0].label for column in columns if column[0].score == "generative_perplexity"]
    if evaluators:
        caption += f"{listed(evaluators)} is lower for less diverse text too; compare the entropies in the tables. "
    if len(experiment.budgets) > 1:
        caption += "Other budgets are in the tables below."
    return caption.rstrip()


def difference_figures(experiment: Experiment, compared: list[Comparison]) -> list[Drawing]:
    """Return a figure for each score with the difference of every pair at every budget, if there are several."""
    if len(experiment.budgets) < 2:
        return []
    at_budgets = [comparison for comparison in compared if comparison.budget is not None]
    labels = dict.fromkeys(comparison.label for comparison in at_budgets)
    return [_differences(experiment, label, [c for c in at_budgets if c.label == label]) for label in labels]


def _differences(experiment: Experiment, label: str, compared: list[Comparison]) -> Drawing:
    by_pair = {pair: [c for c in compared if c.pair == pair] for pair in pairs(experiment)}
    by_pair = {pair: rows for pair, rows in by_pair.items() if rows}
    style, budgets = looks(list(experiment.arms.values())), experiment.budgets
    height = len(budgets) + 2  # rows of a pair: its name, one per budget, and a gap
    canvas, axes = figures.figure(SIZE[0], 0.9 + _LINE * height * len(by_pair))
    for number, (pair, rows) in enumerate(by_pair.items()):
        axes.text(0.0, -number * height, pair.label, transform=axes.get_yaxis_transform(), **_TEXT)
        for row in rows:
            line = -number * height - 1 - budgets.index(row.budget or 0)
            _draw_row(axes, row, line, style[pair.first.name])
            axes.annotate(
                f"T = {row.budget}", (1.0, line), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=7.5, color=figures.MUTED,
            )  # fmt: skip
    axes.axvline(0, color=figures.MUTED, lw=1, zorder=0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(1 - height * len(by_pair), 1)
    title = f"{label}: paired differences"
    name_axes(axes, title, f"difference in {label}")
    caption = (
        f"First arm minus second at equal seed, from top to bottom at T = {listed(budgets)}. Bars are 95 % confidence "
        f"intervals over {count(max(c.difference.n for c in compared), 'seed')}; a hollow point has an interval that "
        "contains zero."
    )
    better = compared[0].better
    if better is not None:
        caption += f" The first arm is better to the {'left' if better == 'lower' else 'right'} of the line."
    data = {"rows": [_row_data(row) for rows in by_pair.values() for row in rows]}
    return Drawing(f"differences-{slug(label).replace('--', '-')}", title, caption, canvas, data)


def _row_data(row: Comparison) -> dict[str, Any]:
    names = {"first": row.pair.first.name, "second": row.pair.second.name, "budget": row.budget}
    return names | {"mean": row.difference.mean, "half_width": row.difference.half_width, "n": row.difference.n}
