"""The tables of generation, in the paper's three forms, and the tables of paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from arcmask.report.comparisons import Comparison, Pair, pairs
from arcmask.report.folder import Arm, Experiment, Score
from arcmask.report.paper import BY_SEED, MEANS, paper_arm, paper_gain
from arcmask.report.quantities import BOUNDS, FURTHER, MAIN, Point, Quantity, point, quantities, values
from arcmask.report.table import Entry, Head, Row, Table, words
from arcmask.report.wording import NONE, PLUS_MINUS, count, fixed, interval, p_value, percentage, plus_minus

ONE_SEED_MARK = "\u2021"
_ONE_SEED = f"{ONE_SEED_MARK} One seed only: a 95 % bootstrap interval over the samples of that seed."
_SOME_SEEDS = "n is the number of seeds, if some of the planned seeds are missing."
_PAPER = "\u201cpaper\u201d marks the value that the paper prints."
_BUDGET = Head("NFE (T)", number=False)


def mean_entry(
    mean: Point | None, digits: int, experiment: Experiment, paper: str = "", *, deviation: bool = False
) -> Entry:
    """Return a cell with mean ± half width; with `deviation`, mean ± standard deviation above the interval."""
    if mean is None:
        return Entry(NONE, paper=paper)
    summary, under = mean.summary, "no interval"
    if mean.interval is not None:
        shown = interval(*mean.interval, digits)
        under = shown + ONE_SEED_MARK if mean.over == "samples" else shown if deviation else ""
    text = plus_minus(summary.mean, summary.std if deviation else summary.half_width, digits)
    return Entry(text, f"{under} {_n(summary.n, experiment)}".strip(), paper)


def _n(seeds: int, experiment: Experiment) -> str:
    return "" if seeds == len(experiment.seeds) else f"n = {seeds}"


def notes(rows: Sequence[Row]) -> list[str]:
    """Explain the marks that occur in the rows."""
    entries = [entry for row in rows for entry in row.entries]
    text = " ".join(entry.under for entry in entries)
    marks = {
        _ONE_SEED: ONE_SEED_MARK in text,
        _SOME_SEEDS: "n = " in text,
        _PAPER: any(entry.paper for entry in entries),
    }
    return [note for note, occurs in marks.items() if occurs]


def main_table(experiment: Experiment) -> Table | None:
    """Return the paper's main table: a row per budget, and per arm generative perplexity and MAUVE."""
    shown = [replace(q, digits=min(q.digits, 4)) for q in quantities(experiment, ("generative_perplexity", "mauve"))]
    if not any(quantity.score == "mauve" for quantity in shown):
        shown += quantities(experiment, ("nearest", "real_word_rate"))
    if not shown:
        return None
    arms = list(experiment.arms.values())
    cells = {f"{arm.name}/{quantity.slug}": (arm, quantity) for arm in arms for quantity in shown}
    rows = []
    for budget in experiment.budgets:
        entries, data = _means(experiment, cells, budget, deviation=True)
        rows.append(Row([words(experiment.budget_label(budget)), *entries], data))
    heads = [Head(q.heading, q.note if q.score == "generative_perplexity" else "") for _ in arms for q in shown]
    groups = [("", 1)] + [(arm.label, len(shown)) for arm in arms]
    caption = (
        "As in the paper, \u00b1 is the standard deviation over seeds. The line below is the 95 % confidence interval "
        "of the mean (Student\u2019s t over seeds)."
    )
    remarks = notes(rows)
    if quantities(experiment, (FURTHER,)):
        remarks.append("MAUVE over several seeds of its clustering is in the table of means below.")
    if not experiment.plan.get("features"):
        remarks.append("There is no MAUVE, because the plan names no model for its features.")
    return Table("main", "Generation quality by budget", caption, [_BUDGET, *heads], rows, groups, remarks)


def interval_table(experiment: Experiment, name: str = "intervals") -> Table | None:
    """Return the paper's interval table, or the same of the scores that the paper does not have (`diversity`)."""
    main = name == "intervals"
    shown = [quantity for quantity in quantities(experiment) if (quantity.score in (*MAIN, FURTHER)) == main]
    if not shown:
        return None
    rows: list[Row] = []
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            entries, data = _means(experiment, {quantity.slug: (arm, quantity) for quantity in shown}, budget)
            first = [words(arm.label), words(experiment.budget_label(budget))]
            rows.append(Row([*first, *entries], {"arm": arm.name} | data, rule=_is_new_arm(rows, arm)))
    heads = [Head("Arm", number=False), _BUDGET, *(Head(q.heading, q.note) for q in shown)]
    title = "Mean and confidence interval" if main else "Diversity, mean and confidence interval"
    return Table(name, title, f"Means over seeds. {PLUS_MINUS}", heads, rows, notes=notes(rows), folded=not main)


def _is_new_arm(rows: Sequence[Row], arm: Arm) -> bool:
    return bool(rows) and rows[-1].data["arm"] != arm.name


def _means(
    experiment: Experiment, cells: Mapping[str, tuple[Arm, Quantity]], budget: int, *, deviation: bool = False
) -> tuple[list[Entry], dict[str, Any]]:
    """Return the entries of a row at a budget, and their numbers by the keys of `cells`."""
    entries, data = [], dict[str, Any](budget=budget)
    for key, (arm, quantity) in cells.items():
        mean = point(experiment, quantity, arm.name, budget)
        printed = MEANS.get((paper_arm(arm.train) or "", budget, quantity.score)) if experiment.is_paper else None
        paper = printed and (printed.main if deviation else printed.interval or printed.main)
        entries.append(mean_entry(mean, quantity.digits, experiment, paper or "", deviation=deviation))
        data[key] = mean and mean.data
    return entries, data


def seed_table(experiment: Experiment) -> Table | None:
    """Return the paper's table of single runs."""
    shown = quantities(experiment, (*MAIN, FURTHER))
    if not shown:
        return None
    rows: list[Row] = []
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            for seed in experiment.seeds:
                if (arm.name, seed, budget) in experiment.scores:
                    cells = {q: values(experiment, q, arm.name, budget).get(seed) for q in shown}
                    first = [words(arm.label), Entry(str(seed)), words(experiment.budget_label(budget))]
                    entries = [_score_entry(experiment, q, arm, seed, budget, score) for q, score in cells.items()]
                    data: dict[str, Any] = {"arm": arm.name, "seed": seed, "budget": budget}
                    data |= {q.slug: score and _score_data(score) for q, score in cells.items()}
                    rows.append(Row(first + entries, data, rule=_is_new_arm(rows, arm)))
    heads = [Head("Arm", number=False), Head("Seed"), _BUDGET, *(Head(q.heading, q.note) for q in shown)]
    caption = (
        "Each row is one trained model at one budget. Below each value is its 95 % bootstrap interval over the samples "
        "of that run. This interval does not include the variation between seeds."
    )
    remark = f"{_PAPER} Its seeds have the same numbers as ours, but other random draws."
    remarks = [remark] if experiment.is_paper else []
    return Table("seeds", "All runs", caption, heads, rows, notes=remarks, folded=True)


def _score_data(score: Score) -> dict[str, Any]:
    return {"value": score.value, "interval": score.interval, **score.details}


def _score_entry(
    experiment: Experiment, quantity: Quantity, arm: Arm, seed: int, budget: int, score: Score | None
) -> Entry:
    """Return a single run's value with its bootstrap interval, or for MAUVE the interval over k-means seeds."""
    if score is None:
        return Entry(NONE)
    digits, seeds, under = quantity.digits, score.details.get("kmeans_seeds", []), "no interval"
    half, spread = (score.details.get(f"{name}_over_seeds") for name in ("half_width", "std"))
    if score.interval is not None:
        under = interval(*score.interval, digits)
    elif half is not None:
        under = f"{interval(score.value - half, score.value + half, digits)}, {count(len(seeds), 'k-means seed')}"
    elif spread is not None:  # scores of earlier versions
        under = f"sd {fixed(spread, digits)}, {count(len(seeds), 'k-means seed')}"
    elif len(seeds) == 1:
        under = f"k-means seed {seeds[0]}"
    paper_name = paper_arm(arm.train) if experiment.is_paper else None
    paper = BY_SEED.get((paper_name or "", seed, budget, quantity.score))
    return Entry(fixed(score.value, digits), under, "" if paper is None else fixed(paper, digits))


def difference_table(experiment: Experiment, compared: list[Comparison]) -> Table | None:
    """Return the paired differences in generation: for every pair a row per score and a column per budget."""
    rows: list[Row] = []
    for pair in pairs(experiment):
        of_pair = [c for c in compared if c.pair == pair and c.budget is not None]
        rows += [Row([], heading=pair.label, rule=bool(rows))] if of_pair else []
        for label in dict.fromkeys(c.label for c in of_pair):
            cells = {str(c.budget): c for c in of_pair if c.label == label}
            keys = [str(budget) for budget in experiment.budgets]
            rows.append(_difference_row(experiment, pair, label, cells, keys, {"score": label}))
    if not rows:
        return None
    heads = [Head("Score", number=False)] + [Head(f"T = {budget}") for budget in experiment.budgets]
    caption = (
        f"Means of first arm minus second arm with the same seed. {PLUS_MINUS} Below are the p-value of the paired "
        "t-test and the reading of the interval. \u201cNo difference seen\u201d means that the interval contains zero; "
        "it does not show that the arms are equal."
    )
    return Table("differences", "Paired differences", caption, heads, rows)


def gain_table(experiment: Experiment, compared: list[Comparison]) -> Table | None:
    """Return the gains of the paper's abstract: by how much each score of the first arm is better, in per cent."""
    rows: list[Row] = []
    for pair in pairs(experiment):
        of_pair = [c for c in compared if c.pair == pair and c.gain is not None]
        rows += [Row([], heading=pair.label, rule=bool(rows))] if of_pair else []
        for label in dict.fromkeys(c.label for c in of_pair):
            rows.append(_gain_row(experiment, [c for c in of_pair if c.label == label]))
    if not rows:
        return None
    budgets = [Head(f"T = {budget}") for budget in experiment.budgets]
    heads = [Head("Score", number=False), *budgets, *([Head("all budgets")] if len(budgets) > 1 else [])]
    caption = (
        "How much better the first arm is than the second, in per cent of the second: how much lower its generative "
        "perplexity is, or how much higher another score. The gain compares means over seeds. Below is its 95 % "
        "confidence interval (Fieller, over paired seeds); it contains zero exactly if that of the difference does."
    )
    remarks = notes(rows)
    if experiment.is_paper:
        remarks.append("The paper\u2019s gains follow from the means of its main table, which has one seed at T = 512.")
    return Table("gains", "Relative gains", caption, heads, rows, notes=remarks, folded=not experiment.is_paper)


def _gain_row(experiment: Experiment, compared: list[Comparison]) -> Row:
    """Return the gains of a pair in one score at every budget, and their range."""
    first, pair, sign = compared[0], compared[0].pair, -1 if compared[0].better == "lower" else 1
    names = paper_arm(pair.first.train) or "", paper_arm(pair.second.train) or ""
    data: dict[str, Any] = {"first": pair.first.name, "second": pair.second.name, "score": first.label}
    entries, gains, papers = [words(first.label)], list[float](), list[float]()
    by_budget = {c.budget: c for c in compared}
    for budget in experiment.budgets:
        gain = by_budget[budget].gain if budget in by_budget else None
        printed = paper_gain(*names, budget, first.score) if experiment.is_paper else None
        paper = "" if printed is None else percentage(sign * printed)
        papers += [] if printed is None else [sign * printed]
        if gain is None:
            entries.append(Entry(NONE, paper=paper))
            continue
        gains.append(gain.value)
        shown = "no interval" if gain.interval is None else interval(100 * gain.interval[0], 100 * gain.interval[1], 1)
        entries.append(Entry(percentage(gain.value), f"{shown} {_n(gain.n, experiment)}".strip(), paper))
        data[str(budget)] = asdict(gain) | {"paper": None if printed is None else sign * printed}
    if len(experiment.budgets) > 1:
        entries.append(Entry(_range(gains), paper=_range(papers)))
    return Row(entries, data)


def _range(shares: list[float]) -> str:
    """Return "12.0 to 34.5 %", or nothing without shares."""
    return f"{percentage(min(shares)).removesuffix(' %')} to {percentage(max(shares))}" if shares else ""


def bound_table(experiment: Experiment, compared: list[Comparison]) -> Table | None:
    """Return the paired differences of the held-out bounds: a row per pair."""
    rows, keys = [], [f"bound_{way}" for way in BOUNDS]
    for pair in pairs(experiment):
        cells = {c.score: c for c in compared if c.pair == pair and c.budget is None}
        if cells:
            rows.append(_difference_row(experiment, pair, pair.label, cells, keys))
    if not rows:
        return None
    heads = [Head("First \u2212 second", number=False), *(Head(f"NLL, {name}") for name in BOUNDS.values())]
    caption = (
        "Means of the held-out NLL of the first arm minus that of the second with the same seed, in nats per token; "
        f"below zero, the first arm is better. {PLUS_MINUS}"
    )
    return Table("likelihood-differences", "Paired differences of the bound", caption, heads, rows)


def _difference_row(
    experiment: Experiment,
    pair: Pair,
    text: str,
    cells: Mapping[str, Comparison],
    keys: Sequence[str],
    data: Mapping[str, Any] | None = None,
) -> Row:
    numbers = {"first": pair.first.name, "second": pair.second.name, **(data or {})}
    for key, c in cells.items():
        numbers[key] = asdict(c.difference) | {"p_value_holm": c.adjusted, "reading": c.reading}
    return Row([words(text), *(_difference_entry(cells.get(key), experiment) for key in keys)], numbers)


def _difference_entry(comparison: Comparison | None, experiment: Experiment) -> Entry:
    if comparison is None:
        return Entry(NONE)
    difference = comparison.difference
    parts = [p_value(difference.p_value), _n(difference.n, experiment)]
    lines = [", ".join(part for part in parts if part), comparison.reading]
    return Entry(comparison.value, "\n".join(line for line in lines if line), mark=comparison.reading)
