"""The tables that `arcmask reproduce` prints at its end: means and paired differences, in 80 columns."""

import re
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, Pair, comparisons, multiplicity_note, pairs
from arcmask.report.folder import Experiment, read_run
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.tables import mean_entry
from arcmask.report.wording import NONE, PLUS_MINUS

_MISSING = Text(NONE, style="dim")
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
    """Return the means and paired differences of an experiment, and what is missing, for `rich.print`."""
    experiment = read_run(Path(folder))
    if not isinstance(experiment, Experiment):
        raise ArcmaskError(f"{folder} is a training run; a table needs an experiment of arms, seeds and budgets")
    compared = comparisons(experiment)
    shown: list[RenderableType] = [Text(PLUS_MINUS, style="dim")]
    if experiment.scores:
        shown += [_means(experiment), Text()]
    if compared:
        shown.append(Text("Paired differences, first arm minus second with the same seed", style="bold"))
        shown.append(Text(", ".join(f"{mark} {reading}" for reading, mark in _MARKS.items()) + "\n", style="dim"))
        for pair in pairs(experiment):
            shown += _differences(experiment, pair, [c for c in compared if c.pair == pair])
        shown += [Text(multiplicity_note(compared), style="dim"), Text()]
    shown += [Text(f"missing: {line}", style="yellow") for line in experiment.missing()]
    return Group(*shown)


def _means(experiment: Experiment) -> Table:
    scores = quantities(experiment, MAIN)
    evaluators = ", ".join(dict.fromkeys(q.note for q in scores if q.score == "generative_perplexity"))
    table = _table("Means over seeds" + (f"; generative perplexity by {evaluators}" if evaluators else ""))
    table.add_column("arm", overflow="fold")
    table.add_column("T", justify="right")
    for quantity in scores:
        table.add_column(_heading(quantity, scores), justify="right", no_wrap=True)
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            cells = [_mean(experiment, quantity, arm.name, budget) for quantity in scores]
            table.add_row(Text(arm.label if budget == experiment.budgets[0] else ""), str(budget), *cells)
        table.add_section()
    return table


def _heading(quantity: Quantity, scores: list[Quantity]) -> Text:
    """Return the heading of a column, with the evaluator if there are several."""
    is_only = sum(q.score == quantity.score for q in scores) == 1
    return Text(quantity.heading if is_only else f"{quantity.heading}\n{quantity.note}")


def _mean(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> Text:
    mean = point(experiment, quantity, arm, budget)
    if mean is None:
        return _MISSING
    entry = mean_entry(mean, quantity.digits, experiment)
    below = f"\n{entry.under}" if mean.over == "samples" else ""
    return Text(_tight(entry.text) + below)


def _differences(experiment: Experiment, pair: Pair, compared: list[Comparison]) -> list[RenderableType]:
    """Return the pair's table with a row per budget, and a line for each measure without budgets."""
    shown: list[RenderableType] = []
    labels = list(dict.fromkeys(c.label for c in compared if c.budget is not None))
    if labels:
        table = _table(pair.label)
        table.add_column("T", justify="right")
        for label in labels:
            table.add_column(Text(label.replace(" (", "\n(")), justify="right", no_wrap=True)
        for budget in experiment.budgets:
            cells = {c.label: _difference(c) for c in compared if c.budget == budget}
            table.add_row(str(budget), *(cells.get(label, _MISSING) for label in labels))
        shown.append(table)
    shown += [Text(f" {c.label}: ").append(_difference(c)) for c in compared if c.budget is None]
    return [*shown, Text()]


def _difference(comparison: Comparison) -> Text:
    text = Text(_tight(comparison.value))
    return text.append(f" {_MARKS[comparison.reading]}", style=_STYLES.get(comparison.reading, "dim"))


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    return table


def _tight(text: str) -> str:
    """Shorten a number for 80 columns: no space after ±, and one decimal from a thousand on."""
    if re.search(r"\d{4}\.", text):
        text = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}", text)
    return text.replace(" \u00b1 ", " \u00b1")
