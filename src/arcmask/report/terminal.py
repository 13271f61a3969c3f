"""The tables that `arcmask reproduce` prints at its end: means and paired differences, in 80 columns."""

import re
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import arcmask.report.table as report_table
from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, Pair, comparisons, multiplicity_note, pairs
from arcmask.report.folder import Experiment, read_run
from arcmask.report.quantities import KINDS
from arcmask.report.tables import ONE_SEED_MARK, interval_table
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
    means = interval_table(experiment)
    if means is not None:
        notes = [note for note in means.notes if note.startswith(ONE_SEED_MARK)]
        shown += [_means(experiment, means), Text("\n".join(notes), style="dim")]
    if compared:
        shown.append(Text("Paired differences, first arm minus second with the same seed", style="bold"))
        shown.append(Text(", ".join(f"{mark} {reading}" for reading, mark in _MARKS.items()) + "\n", style="dim"))
        for pair in pairs(experiment):
            shown += _differences(experiment, pair, [c for c in compared if c.pair == pair])
        shown += [Text(multiplicity_note(compared), style="dim"), Text()]
    shown += [Text(f"missing: {line}", style="yellow") for line in experiment.missing()]
    return Group(*shown)


def _means(experiment: Experiment, source: report_table.Table) -> Table:
    heads = [head.text for head in source.heads]
    evaluators = [head.note for head in source.heads if head.text.startswith(KINDS["generative_perplexity"].label)]
    table = _table("Means over seeds" + (f"; generative perplexity by {', '.join(evaluators)}" if evaluators else ""))
    table.add_column("arm", overflow="fold")
    table.add_column("T", justify="right")
    for head in source.heads[2:]:  # with the evaluator, if there are several
        text = head.text if heads.count(head.text) == 1 else f"{head.text}\n{head.note}"
        table.add_column(Text(text), justify="right", no_wrap=True)
    for row in source.rows:
        budget = row.data["budget"]
        if budget == experiment.budgets[0]:
            table.add_section()
        label = row.entries[0].text if budget == experiment.budgets[0] else ""
        table.add_row(Text(label), str(budget), *(_mean(entry) for entry in row.entries[2:]))
    return table


def _mean(entry: report_table.Entry) -> Text:
    below = f"\n{entry.under}" if ONE_SEED_MARK in entry.under else ""
    return Text(_tight(entry.text) + below, style="dim" if entry.text == NONE else "")


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
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True
    return table


def _tight(text: str) -> str:
    """Shorten a number for 80 columns: no space after ±, and one decimal from a thousand on."""
    if re.search(r"\d{4}\.", text):
        text = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}", text)
    return text.replace(" \u00b1 ", " \u00b1")
