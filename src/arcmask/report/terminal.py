"""What `arcmask reproduce` prints at its end: means with intervals, and the paired differences, in 80 columns."""

import re
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, Pair, about_the_number, comparisons, pairs
from arcmask.report.folder import Experiment, open_run
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.wording import NONE, interval, plus_minus

_STYLES = {"better": "green", "worse": "red"}
_MARKS = {
    "better": "\u2713",
    "worse": "\u2717",
    "higher": "\u2191",
    "lower": "\u2193",
    "no difference seen": "\u00b7",
    "no interval": "?",
}


def terminal_table(folder: str | Path) -> Group:
    """The means and the differences of an experiment, for `rich.print`; and what is missing of it."""
    experiment = open_run(Path(folder))
    if not isinstance(experiment, Experiment):
        raise ArcmaskError(f"{folder} is a training run; a table needs an experiment of arms, seeds and budgets")
    found = comparisons(experiment)
    shown: list[RenderableType] = []
    if experiment.scores:
        shown += [_means(experiment), Text()]
    if found:
        shown.append(
            Text("paired differences, seed by seed, \u00b1 half the width of their 95 % intervals", style="bold")
        )
        shown.append(Text(", ".join(f"{mark} {reading}" for reading, mark in _MARKS.items()) + "\n", style="dim"))
        for pair in pairs(experiment):
            shown += _differences(experiment, pair, [c for c in found if c.pair == pair])
        shown += [Text(about_the_number(found), style="dim"), Text()]
    shown += [Text(f"not there: {line}", style="yellow") for line in experiment.missing()]
    return Group(*shown)


def _means(experiment: Experiment) -> Table:
    scores = quantities(experiment, MAIN)
    evaluators = ", ".join(dict.fromkeys(q.note for q in scores if q.score == "generative_perplexity"))
    title = "mean \u00b1 half the width of its 95 % interval over seeds"
    made = _table(title + (f"; generative perplexity by {evaluators}" if evaluators else ""))
    made.add_column("arm", overflow="fold")
    made.add_column("T", justify="right")
    for quantity in scores:
        made.add_column(_heading(quantity, scores), justify="right", no_wrap=True)
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            cells = [_mean(experiment, quantity, arm.name, budget) for quantity in scores]
            made.add_row(Text(arm.label if budget == experiment.budgets[0] else ""), str(budget), *cells)
        made.add_section()
    return made


def _heading(quantity: Quantity, scores: list[Quantity]) -> Text:
    """With the evaluator, if there are two of them."""
    alone = sum(q.score == quantity.score for q in scores) == 1
    return Text(quantity.heading if alone else f"{quantity.heading}\n{quantity.note}")


def _mean(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> Text:
    at = point(experiment, quantity, arm, budget)
    if at is None:
        return Text(NONE, style="dim")
    text = _tight(plus_minus(at.summary.mean, at.summary.half_width, quantity.digits))
    if at.over == "samples" and at.interval is not None:  # one seed: what its samples say
        text += f"\n{interval(*at.interval, quantity.digits)}"
    return Text(text)


def _differences(experiment: Experiment, pair: Pair, found: list[Comparison]) -> list[RenderableType]:
    """A table for the pair with a row for each budget, and a line for what has none."""
    shown: list[RenderableType] = []
    labels = list(dict.fromkeys(c.label for c in found if c.budget is not None))
    if labels:
        made = _table(pair.label)
        made.add_column("T", justify="right")
        for label in labels:
            made.add_column(Text(label.replace(" (", "\n(")), justify="right", no_wrap=True)
        for budget in experiment.budgets:
            cells = {c.label: _difference(c) for c in found if c.budget == budget}
            made.add_row(str(budget), *(cells.get(label, Text(NONE, style="dim")) for label in labels))
        shown.append(made)
    for comparison in found:
        if comparison.budget is None:
            shown.append(Text(f" {comparison.label}: ").append(_difference(comparison)))
    return [*shown, Text()]


def _difference(comparison: Comparison) -> Text:
    text = Text(_tight(comparison.value))
    return text.append(f" {_MARKS[comparison.reading]}", style=_STYLES.get(comparison.reading, "dim"))


def _table(title: str) -> Table:
    looks = {"box": box.SIMPLE_HEAD, "title_justify": "left", "title_style": "bold", "pad_edge": False}
    return Table(title=title, collapse_padding=True, **looks)  # type: ignore[arg-type]


def _tight(text: str) -> str:
    """With no room after the sign, and one decimal beside thousands: 80 columns are few."""
    if re.search(r"\d{4}\.", text):
        text = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}", text)
    return text.replace(" \u00b1 ", " \u00b1")
