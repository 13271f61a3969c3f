"""Compare several experiments: arms of the same name in one table, if the experiments are comparable."""

import json
from typing import Any

from arcmask.report.document import Block, Chapter, Section, table_blocks
from arcmask.report.folder import Experiment
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.table import Entry, Head, Row, Table, words
from arcmask.report.tables import mean_entry, notes
from arcmask.report.wording import NONE, PLUS_MINUS, listed

# The settings that two experiments must share for their numbers to be comparable.
_SHARED = ("protocol", "corpus", "data", "tokenizer", "length", "samples", "sampling")


def comparison_chapter(experiments: dict[str, Experiment]) -> Chapter:
    """Return the chapter that shows arms of the same name in several experiments."""
    names = list(experiments)
    reference = experiments[names[0]]
    differences = {name: _differences(reference, experiment) for name, experiment in experiments.items()}
    refused = [f"{name} is not compared with {names[0]}: {text}" for name, text in differences.items() if text]
    comparable = {name: experiments[name] for name in names if not differences[name]}
    tables = table_blocks(_table(comparable)) if len(comparable) > 1 else []
    text = "These runs have no arm and score in common that can be compared."
    if tables:
        text = (
            "The table shows arms with the same name. Only scores by the same evaluator, tokenizer and reference share "
            "a row. The runs may differ in seeds and training, so differences between them are not tested."
        )
    notice = [Block("notice", "Not compared", items=refused)] if refused else []
    sections = [Section("side-by-side", "Arms by name", [Block("text", text), *notice, *tables])]
    return Chapter("comparison", "Comparison of the runs", f"{listed(names)}.", sections)


def _differences(reference: Experiment, other: Experiment) -> str:
    """Return in which shared settings two experiments differ; empty if in none."""
    pairs = {key: [json.dumps(e.plan.get(key), sort_keys=True) for e in (reference, other)] for key in _SHARED}
    return "; ".join(f"{key} is {there} there and {here} here" for key, (here, there) in pairs.items() if here != there)


def _table(experiments: dict[str, Experiment]) -> Table | None:
    every = list(experiments.values())
    labels = {arm.name: arm.label for experiment in reversed(every) for arm in experiment.arms.values()}
    names = dict.fromkeys(arm for experiment in every for arm in experiment.arms)
    columns = list(dict.fromkeys(quantity for experiment in every for quantity in quantities(experiment, MAIN)))
    budgets = sorted({budget for experiment in every for budget in experiment.budgets})
    rows: list[Row] = []
    for arm in names:
        new = [_row(experiments, arm, quantity, budget) for quantity in columns for budget in budgets]
        shared = [row for row in new if sum(entry.text != NONE for entry in row.entries[2:]) > 1]
        rows += [Row([], heading=labels[arm], rule=bool(rows)), *shared] if shared else []
    if not rows:
        return None
    heads = [Head("Score", number=False), Head("T"), *(Head(name) for name in experiments)]
    caption = f"Means over the seeds of each run. {PLUS_MINUS}"
    return Table("comparison", "Arms by name and run", caption, heads, rows, notes=notes(rows))


def _row(experiments: dict[str, Experiment], arm: str, quantity: Quantity, budget: int) -> Row:
    entries = [words(quantity.label), Entry(str(budget))]
    data: dict[str, Any] = {"arm": arm, "score": quantity.slug, "budget": budget}
    for name, experiment in experiments.items():
        mean = point(experiment, quantity, arm, budget)
        entries.append(mean_entry(mean, quantity.digits, experiment))
        data[name] = mean and {key: getattr(mean.summary, key) for key in ("mean", "half_width", "n")}
    return Row(entries, data)
