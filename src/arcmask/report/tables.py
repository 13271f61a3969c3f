"""The tables of generation: the paper's three forms, and the paired differences."""

from typing import Any

from arcmask.report.comparisons import Comparison, about_the_number, pairs
from arcmask.report.folder import Arm, Experiment, Score
from arcmask.report.paper import BY_SEED, MEANS, paper_arm
from arcmask.report.quantities import MAIN, Point, Quantity, point, quantities, values
from arcmask.report.table import Entry, Head, Row, Table
from arcmask.report.wording import NONE, count, fixed, interval, p_value, plus_minus

ONE_SEED = "\u2021 One seed only: the interval is the bootstrap's, over that seed's samples."
SOME_SEEDS = "n is the number of seeds where not all of the planned ones are there."
THE_PAPERS = "The second value in a cell, after \u201cpaper\u201d, is the one that the paper prints."


def main_table(experiment: Experiment) -> Table | None:
    """The paper's main table: a row for each budget, and for each arm generative perplexity and MAUVE."""
    found = quantities(experiment, ("generative_perplexity", "mauve"))
    if not any(quantity.score == "mauve" for quantity in found):
        found += quantities(experiment, ("real_word_rate",))
    if not found:
        return None
    arms = list(experiment.arms.values())
    rows = []
    for budget in experiment.budgets:
        entries = [Entry(experiment.budget_label(budget), number=False)]
        data: dict[str, Any] = {"budget": budget}
        for arm in arms:
            for quantity in found:
                entries.append(_mean_entry(experiment, quantity, arm, budget, "std"))
                data[f"{arm.name}/{quantity.slug}"] = _data(point(experiment, quantity, arm.name, budget))
        rows.append(Row(entries, data))
    heads = [Head("NFE (T)", number=False)]
    heads += [Head(q.heading, q.note if q.score == "generative_perplexity" else "") for _ in arms for q in found]
    groups = [("", 1)] + [(arm.label, len(found)) for arm in arms]
    caption = (
        "Each cell is the mean \u00b1 the sample standard deviation over seeds, as in the paper, and beneath it the "
        "95 % interval of the mean (Student\u2019s t)."
    )
    return Table("main", "Generation quality against budget", caption, heads, rows, groups, _notes(rows))


def interval_table(experiment: Experiment, name: str = "intervals") -> Table | None:
    """The paper's interval table; `diversity` is the same of the scores that the paper does not have."""
    rest = [q for q in quantities(experiment) if q.score not in MAIN]
    found = quantities(experiment, MAIN) if name == "intervals" else rest
    if not found:
        return None
    rows: list[Row] = []
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            entries = [Entry(arm.label, number=False), Entry(experiment.budget_label(budget), number=False)]
            entries += [_mean_entry(experiment, quantity, arm, budget, "half_width") for quantity in found]
            data: dict[str, Any] = {"arm": arm.name, "budget": budget}
            data |= {q.slug: _data(point(experiment, q, arm.name, budget)) for q in found}
            rows.append(Row(entries, data, rule=bool(rows) and budget == experiment.budgets[0]))
    heads = [Head("Arm", number=False), Head("NFE (T)", number=False), *(Head(q.heading, q.note) for q in found)]
    title = "Mean and 95 % interval" if name == "intervals" else "Diversity, mean and 95 % interval"
    caption = "Each cell is the mean \u00b1 half the width of its 95 % interval over seeds (Student\u2019s t)."
    return Table(name, title, caption, heads, rows, notes=_notes(rows), folded=name == "diversity")


def seed_table(experiment: Experiment) -> Table | None:
    """The paper's table of single runs."""
    found = quantities(experiment, MAIN)
    if not found:
        return None
    rows: list[Row] = []
    for arm in experiment.arms.values():
        first = True
        for budget in experiment.budgets:
            for seed in experiment.seeds:
                if (arm.name, seed, budget) in experiment.scores:
                    rows.append(_seed_row(experiment, found, arm, seed, budget, rule=first and bool(rows)))
                    first = False
    heads = [Head("Arm", number=False), Head("Seed"), Head("NFE (T)", number=False)]
    heads += [Head(q.heading, q.note) for q in found]
    caption = (
        "Each row is one trained model at one budget; beneath each value stands its 95 % bootstrap interval over the "
        "samples of that run, which says nothing of other seeds."
    )
    notes = [THE_PAPERS + " Its seeds share their numbers with ours, not their draws."] if experiment.is_paper else []
    return Table("seeds", "Every run", caption, heads, rows, notes=notes, folded=True)


def _seed_row(experiment: Experiment, found: list[Quantity], arm: Arm, seed: int, budget: int, *, rule: bool) -> Row:
    entries = [
        Entry(arm.label, number=False),
        Entry(str(seed)),
        Entry(experiment.budget_label(budget), number=False),
    ]
    data: dict[str, Any] = {"arm": arm.name, "seed": seed, "budget": budget}
    theirs = paper_arm(arm.train) if experiment.is_paper else None
    for quantity in found:
        score, digits = values(experiment, quantity, arm.name, budget).get(seed), quantity.digits
        if score is None:
            entries.append(Entry(NONE))
            data[quantity.slug] = None
            continue
        paper = BY_SEED.get((theirs or "", seed, budget, quantity.score))
        beneath = "" if paper is None else fixed(paper, digits)
        entries.append(Entry(fixed(score.value, digits), _within_run(score, digits), beneath))
        data[quantity.slug] = {"value": score.value, "interval": score.interval, **score.details}
    return Row(entries, data, rule=rule)


def _within_run(score: Score, digits: int) -> str:
    """How sure a single run's value is: MAUVE has no bootstrap, but k-means starts of its own."""
    if score.interval is not None:
        return interval(*score.interval, digits)
    spread = score.details.get("std_over_seeds")
    if spread is None:
        return "no interval"
    return f"sd {fixed(spread, digits)}, {count(len(score.details.get('kmeans_seeds', [])), 'k-means seed')}"


def difference_table(experiment: Experiment, found: list[Comparison]) -> Table | None:
    """Paired differences: for every pair of arms a row for each score, and a column for each budget."""
    with_budget = [c for c in found if c.budget is not None]
    if not with_budget:
        return None
    rows: list[Row] = []
    for pair in pairs(experiment):
        mine = [c for c in with_budget if c.pair == pair]
        if mine:
            rows.append(Row([], heading=pair.label, rule=bool(rows)))
        for label in dict.fromkeys(c.label for c in mine):
            by_budget = {c.budget: c for c in mine if c.label == label}
            entries = [Entry(label, number=False)]
            entries += [difference_entry(by_budget.get(budget), experiment) for budget in experiment.budgets]
            data: dict[str, Any] = {"first": pair.first.name, "second": pair.second.name, "score": label}
            data |= {str(budget): comparison_data(c) for budget, c in by_budget.items()}
            rows.append(Row(entries, data))
    heads = [Head("Score", number=False)] + [Head(f"T = {budget}") for budget in experiment.budgets]
    caption = (
        "Each cell is the mean of the differences, seed by seed, \u00b1 half the width of its 95 % interval, with the "
        "p-value of the paired t-test and what the interval says; an interval that contains zero says no difference "
        "was seen, which does not say that there is none."
    )
    return Table("differences", "Paired differences", caption, heads, rows, notes=[about_the_number(found)])


def difference_entry(comparison: Comparison | None, experiment: Experiment) -> Entry:
    """A difference as a cell."""
    if comparison is None:
        return Entry(NONE)
    test = [p_value(comparison.difference.p_value), _n(comparison.difference.n, experiment)]
    lines = [", ".join(part for part in test if part), comparison.reading]
    return Entry(comparison.value, "\n".join(line for line in lines if line), mark=comparison.reading)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """The numbers of a comparison."""
    numbers = {name: getattr(comparison.difference, name) for name in ("mean", "std", "half_width", "p_value", "n")}
    return numbers | {"p_value_holm": comparison.adjusted, "reading": comparison.reading}


def _mean_entry(experiment: Experiment, quantity: Quantity, arm: Arm, budget: int, spread: str) -> Entry:
    """mean ± std with the interval beneath, or mean ± half width; with one seed, its bootstrap interval."""
    found, digits = point(experiment, quantity, arm.name, budget), quantity.digits
    if found is None:
        return Entry(NONE)
    text = plus_minus(found.summary.mean, getattr(found.summary, spread), digits)
    under = []
    if found.over == "samples" and found.interval is not None:
        under.append(interval(*found.interval, digits) + "\u2021")
    elif found.over is None:
        under.append("no interval")
    elif spread == "std" and found.interval is not None:
        under.append(interval(*found.interval, digits))
    under.append(_n(found.summary.n, experiment))
    return Entry(text, " ".join(part for part in under if part), _paper_mean(experiment, quantity, arm, budget, spread))


def _paper_mean(experiment: Experiment, quantity: Quantity, arm: Arm, budget: int, spread: str) -> str:
    if not experiment.is_paper:
        return ""
    printed = MEANS.get((paper_arm(arm.train) or "", budget, quantity.score))
    if printed is None:
        return ""
    return (printed.main if spread == "std" else printed.interval or printed.main) or ""


def _n(seeds: int, experiment: Experiment) -> str:
    return "" if seeds == len(experiment.seeds) else f"n = {seeds}"


def _data(found: Point | None) -> dict[str, Any] | None:
    if found is None:
        return None
    summary = {name: getattr(found.summary, name) for name in ("mean", "std", "half_width", "n")}
    return summary | {"interval": found.interval, "interval_over": found.over, "seeds": found.seeds}


def _notes(rows: list[Row]) -> list[str]:
    text = " ".join(entry.under for row in rows for entry in row.entries)
    notes = [note for sign, note in (("\u2021", ONE_SEED), ("n = ", SOME_SEEDS)) if sign in text]
    return notes + ([THE_PAPERS] if any(entry.paper for row in rows for entry in row.entries) else [])
