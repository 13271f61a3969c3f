"""What `arcmask reproduce` prints at its end: the conclusion, the means and the paired differences, in 80 columns.

Arms are called by the names of their folders, because labels are too long for a row.
"""

from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, by_second, comparisons, headlines, main_pairs, multiplicity_note
from arcmask.report.conclusion import conclusion, training_note
from arcmask.report.folder import Experiment, read_run
from arcmask.report.quantities import (
    AS_USED,
    HEADLINES,
    Headline,
    Point,
    bounds,
    headline,
    mean_point,
    point,
    quantities,
)
from arcmask.report.wording import NONE, PLUS_MINUS, count, listed

_STYLES = {"better": "green", "worse": "red"}
_MARKS = {"better": "\u2713", "worse": "\u2717", "no difference seen": "\u00b7", "no interval": "?"}


def terminal_table(folder: str | Path) -> Group:
    """Return the conclusion, means and paired differences of an experiment, and what is missing, for `rich.print`."""
    experiment = read_run(Path(folder))
    if not isinstance(experiment, Experiment):
        raise ArcmaskError(f"{folder} is a training run; a table needs an experiment of arms, seeds and budgets")
    compared = comparisons(experiment)
    text = conclusion(experiment, compared)
    shown: list[RenderableType] = [Text(f"{text}\n", style="bold")] if text else []
    shown += [_means(experiment), Text(_explanation(experiment), style="dim")]
    if compared:
        shown += [Text(), _differences(experiment, compared), Text(_legend(experiment, compared), style="dim")]
        notes = filter(None, (training_note(experiment, compared), multiplicity_note(compared)))
        shown += [part for note in notes for part in (Text(), Text(note))]
    missing = [Text(f"missing: {line}", style="yellow") for line in experiment.missing()]
    return Group(*shown, *([Text(), *missing] if missing else []), Text())


def _means(experiment: Experiment) -> Table:
    """Return a row for each arm and budget. The bound, which has no budget, stands in an arm's first row."""
    scores = sorted(quantities(experiment, HEADLINES), key=lambda q: list(HEADLINES).index(q.score))
    titles = [HEADLINES[q.score].title for q in scores]
    bound = HEADLINES[AS_USED]
    table = _table(f"Means over {count(len(experiment.seeds), 'seed')}", ["arm", "T", bound.title])
    for quantity, title in zip(scores, titles, strict=True):
        _add_column(table, title if titles.count(title) == 1 else f"{title}\n{quantity.note}")
    for arm in experiment.arms.values():
        name, nats = arm.name, _mean(bound, mean_point(bounds(experiment, arm.name, "two_pass")))
        for budget in experiment.budgets or [0]:  # an experiment without samples has the bound alone
            cells = [_mean(headline(q.score, q.digits), point(experiment, q, arm.name, budget)) for q in scores]
            table.add_row(_name(name), str(budget or ""), nats, *cells)
            name, nats = "", Text()
        if len(experiment.budgets) > 1:
            table.add_section()
    return table


def _mean(headline: Headline, mean: Point | None) -> Text:
    return Text(NONE, style="dim") if mean is None else Text(headline.text(mean.summary.mean, None))


def _explanation(experiment: Experiment) -> str:
    """Return the units of the means, and the evaluators."""
    evaluators = [q.note for q in quantities(experiment, ("generative_perplexity",))]
    has_words = bool(quantities(experiment, ("real_word_rate",)))
    parts = ["Held-out NLL: the bound as used, in nats per token"]
    parts += ["Real words: in %"] if has_words else []
    has_neighbours = bool(quantities(experiment, ("nearest",)))
    parts += ["Nearest: edits to the nearest training row"] if has_neighbours else []
    parts += [f"Gen PPL: by {listed(evaluators)}"] if evaluators else []
    return f"{'. '.join(parts)}."


def _differences(experiment: Experiment, compared: list[Comparison]) -> Table:
    """Return a row for each pair, below the arm that is subtracted, with the main quantities at the largest budget."""
    columns = headlines(experiment, compared)
    titles = {label: HEADLINES[column[0].score].title for label, column in columns.items()}
    at = f" at T = {experiment.budgets[-1]}" if experiment.budgets else ""
    table = _table(f"Paired differences{at}, seed by seed", ["arm"])
    for label, title in titles.items():
        _add_column(table, title if list(titles.values()).count(title) == 1 else label.replace(" (", "\n("))
    for second, group in by_second(main_pairs(experiment)):
        table.add_section()
        table.add_row(_name(f"vs. {second.name}"))
        for pair in group:
            cells = {label: c for label, column in columns.items() for c in column if c.pair == pair}
            if cells:
                table.add_row(_name(f" {pair.first.name}"), *(_difference(cells.get(label)) for label in columns))
    return table


def _difference(comparison: Comparison | None) -> Text:
    if comparison is None:
        return Text(NONE, style="dim")
    difference, reading = comparison.difference, comparison.reading
    text = headline(comparison.score, comparison.digits).text(difference.mean, difference.half_width, signed=True)
    return Text(text.replace(" \u00b1 ", " \u00b1")).append(_MARKS[reading], style=_STYLES.get(reading, "dim"))


def _legend(experiment: Experiment, compared: list[Comparison]) -> str:
    readings = {c.reading for column in headlines(experiment, compared).values() for c in column}
    marks = [f"{mark} {reading}" for reading, mark in _MARKS.items() if reading in readings]
    return f"{PLUS_MINUS} {', '.join(marks)}."


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False
    )
    table.collapse_padding = True
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=number > 0)
    return table


def _add_column(table: Table, title: str) -> None:
    table.add_column(Text(title), justify="right", no_wrap=True)


def _name(name: str) -> Text:
    """Return a name for the first column, which is cut if the row would not fit."""
    return Text(name, no_wrap=True, overflow="ellipsis")
