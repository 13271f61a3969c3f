"""Several experiments side by side: arms of one name, where the numbers may stand in one table."""

import json
from typing import Any

from arcmask.report.document import Block, Chapter, Section, table_blocks
from arcmask.report.folder import Experiment
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.table import Entry, Head, Row, Table
from arcmask.report.tables import ONE_SEED
from arcmask.report.wording import NONE, interval, listed, plus_minus

# What must be equal, so that an arm's numbers in two experiments are numbers of the same thing.
_SHARED = ("protocol", "corpus", "data", "tokenizer", "length", "samples", "sampling")


def comparison_chapter(experiments: dict[str, Experiment]) -> Chapter:
    """Arms that two or more experiments have, by name."""
    names = list(experiments)
    first = experiments[names[0]]
    alike = [name for name in names if not differing(first, experiments[name])]
    blocks = []
    for name in names:
        why = differing(first, experiments[name])
        if why:
            blocks.append(f"{name} is not compared with {names[0]}: {why}")
    notice = [Block("notice", "Not compared", items=blocks)] if blocks else []
    tables: list[Block] = []
    if len(alike) > 1:
        tables = table_blocks(_side_by_side({name: experiments[name] for name in alike}))
    text = (
        "Arms of the same name, run by run; only scores by the same evaluator, tokenizer and reference share a row. "
        "The runs need not share seeds or training, so that no difference is tested here."
    )
    if not tables:
        text = "No two of these runs have an arm and a score in common that could stand side by side."
    sections = [Section("side-by-side", "Arms by name", [Block("text", text), *notice, *tables])]
    return Chapter("comparison", "The runs side by side", f"{listed(names)}.", sections)


def differing(first: Experiment, other: Experiment) -> str:
    """In which of the settings that must be equal two experiments differ, as text; empty if in none."""
    parts = []
    for key in _SHARED:
        here, there = (json.dumps(e.plan.get(key), sort_keys=True) for e in (first, other))
        if here != there:
            parts.append(f"{key} is {there} there and {here} here")
    return "; ".join(parts)


def _side_by_side(experiments: dict[str, Experiment]) -> Table | None:
    every = list(experiments.values())
    arms = [arm for arm in every[0].arms if sum(arm in e.arms for e in every) > 1]
    arms += [arm for e in every[1:] for arm in e.arms if arm not in arms and sum(arm in o.arms for o in every) > 1]
    found = list(dict.fromkeys(q for e in every for q in quantities(e, MAIN)))
    budgets = sorted({budget for e in every for budget in e.budgets})
    rows: list[Row] = []
    for arm in arms:
        label = next(e.arms[arm].label for e in every if arm in e.arms)
        new = [_row(experiments, arm, quantity, budget) for quantity in found for budget in budgets]
        full = [row for row in new if sum(entry.text != NONE for entry in row.entries[2:]) > 1]
        rows += [Row([], heading=label, rule=bool(rows)), *full] if full else []
    if not rows:
        return None
    heads = [Head("Score", number=False), Head("T"), *(Head(name) for name in experiments)]
    caption = "Each cell is the mean \u00b1 half the width of its 95 % interval over the seeds of that run."
    notes = [ONE_SEED] if any("\u2021" in entry.under for row in rows for entry in row.entries) else []
    return Table("comparison", "Arms by name, run by run", caption, heads, rows, notes=notes)


def _row(experiments: dict[str, Experiment], arm: str, quantity: Quantity, budget: int) -> Row:
    entries = [Entry(quantity.label, number=False), Entry(str(budget))]
    data: dict[str, Any] = {"arm": arm, "score": quantity.slug, "budget": budget}
    for name, experiment in experiments.items():
        at = point(experiment, quantity, arm, budget) if arm in experiment.arms else None
        digits = quantity.digits
        if at is None:
            entries.append(Entry(NONE))
            data[name] = None
            continue
        under = interval(*at.interval, digits) + "\u2021" if at.over == "samples" and at.interval else ""
        entries.append(Entry(plus_minus(at.summary.mean, at.summary.half_width, digits), under))
        data[name] = {"mean": at.summary.mean, "half_width": at.summary.half_width, "n": at.summary.n}
    return Row(entries, data)
