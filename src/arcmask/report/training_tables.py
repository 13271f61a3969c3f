"""The tables of training: feedback regimes, ablations, and the held-out likelihood."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from arcmask.evaluation.statistics import paired_change
from arcmask.report.folder import Arm, Experiment, Training
from arcmask.report.paper import COMPARED, PROPOSED, REGIMES, Trained, paper_ablation, paper_arm
from arcmask.report.quantities import KINDS, Kind, bounds, mean_point
from arcmask.report.step_metrics import at_step, read_step, window
from arcmask.report.table import Entry, Head, Row, Table, words
from arcmask.report.tables import mean_entry, notes
from arcmask.report.wording import NONE, PLUS_MINUS, count, fixed, interval
from arcmask.settings.train import ON_RESUME

_ABLATED = {"karcher_steps": "Karcher steps", "top_k": "Candidates k", "fixed_weight": "Fixed weight"}
# Key in a training run's metrics -> heading, digits.
_COLUMNS = {
    "epoch_perplexity": (Head("PPL", "training,\nepoch mean"), 3),
    "epoch_nll": (Head("NLL", "training,\nepoch mean"), 4),
    "perplexity": (Head("PPL", "training,\nrecent mean"), 3),
    "nll": (Head("NLL", "training,\nrecent mean"), 4),
    "validation_perplexity_plain": (Head("PPL", "validation,\nplain"), 3),
    "validation_perplexity_feedback": (Head("PPL", "validation,\ntwo-pass"), 3),
    "weight": (Head("Weight"), 4),
    "angle": (Head("Angle\u00b0", "Fréchet"), 2),
    "euclidean_angle": (Head("Angle\u00b0", "Euclidean"), 2),
}
# Key in a training run's metrics -> the paper's value that stands with it.
_PRINTED = {"epoch_perplexity": "perplexity", "epoch_nll": "nll", "weight": "weight", "angle": "angle"}
# Key of a held-out bound -> heading, digits.
_BOUND_UNITS = {"nats": ("NLL", 4), "perplexity": ("PPL", 3), "bits_per_byte": ("Bits/byte", 4)}


def regime_table(experiment: Experiment) -> Table | None:
    """Return the paper's comparison of feedback regimes: training metrics of each arm at one step.

    None if an ablation table has the same rows.
    """
    step = read_step(experiment)
    trained = [arm for arm in experiment.arms.values() if arm.kind == "trained"]
    families = [arms for key in _ABLATED for arms in _families(experiment, key)]
    if step is None or any({*map(id, arms)} == {*map(id, trained)} for arms in families):
        return None
    rows = []
    for arm in trained:
        paper = REGIMES.get(paper_arm(arm.train) or "") if experiment.plan.get("read_at") is None else None
        rows += _trained_row(experiment, arm, step, arm.label, paper)
    if not rows:
        return None
    table = _trained_table("regimes", f"Feedback regimes at step {step:,}", step, "Arm", rows)
    return replace(table, notes=[*table.notes, *_weight_ratio(experiment, trained, step)])


def _weight_ratio(experiment: Experiment, arms: list[Arm], step: int) -> list[str]:
    """Say how much larger the learned weight of the paper's operator is than that of the one it replaces."""
    learned = {paper_arm(arm.train): arm for arm in arms}
    if not {PROPOSED, COMPARED} <= set(learned):
        return []
    first, second = learned[PROPOSED], learned[COMPARED]
    runs = [[experiment.trainings.get((arm.name, seed)) for seed in experiment.seeds] for arm in (first, second)]
    pairs = [
        (at_step(a, step), at_step(b, step)) for a, b in zip(*runs, strict=True) if a is not None and b is not None
    ]
    weights = [(a["weight"], b["weight"]) for a, b in pairs if "weight" in a and b.get("weight", 0) > 0]
    if not weights:
        return []
    change = paired_change(*map(list, zip(*weights, strict=True)))
    shown = ""
    if change.interval is not None:
        shown = f", 95 % {interval(1 + change.interval[0], 1 + change.interval[1], 2)}"
    paper = "; paper: 1.9" if experiment.is_paper and experiment.plan.get("read_at") is None else ""
    return [f"The weight of {first.label} is {1 + change.value:.2f} times that of {second.label}{shown}{paper}."]


def ablation_tables(experiment: Experiment) -> list[Table]:
    """Return a table for each setting in which otherwise equal arms differ.

    An ablation has one seed and fewer steps, so the arms beside it are read with that seed, at its last step.
    """
    tables = []
    for setting, label in _ABLATED.items():
        families = _families(experiment, setting)
        is_short = any(arm.name in experiment.ablations for arms in families for arm in arms)
        planned = [int(arm.train["steps"]) for arms in families for arm in arms if arm.train.get("steps")]
        step = min(planned) if is_short and planned else read_step(experiment)
        if step is None:
            continue
        rows: list[Row] = []
        for arms in families:
            new: list[Row] = []
            seeds = experiment.seeds[:1] if is_short else experiment.seeds
            for arm in arms:
                value, paper = arm.train[setting], paper_ablation(setting, arm.train)
                new += _trained_row(experiment, arm, step, str(value), paper, {setting: value}, seeds)
            rows += [Row([], heading=arms[0].operator, rule=bool(rows)), *new] if new else []
        if rows:
            name = setting.replace("_", "-")
            tables.append(_trained_table(name, f"{label} at step {step:,}", step, label, rows))
    return tables


def _families(experiment: Experiment, setting: str) -> list[list[Arm]]:
    """Group the arms and ablations that differ in one setting alone, sorted by it; their lengths may differ."""
    families: dict[str, list[Arm]] = {}
    free = (setting, "steps", *ON_RESUME["always"]) if experiment.ablations else (setting,)
    for arm in (experiment.arms | experiment.ablations).values():
        if arm.has_feedback and arm.train.get(setting) is not None:
            others = {key: value for key, value in arm.train.items() if key not in free}
            families.setdefault(repr(sorted(others.items())), []).append(arm)
    return [sorted(arms, key=lambda arm: arm.train[setting]) for arms in families.values() if len(arms) > 1]


def _trained_row(
    experiment: Experiment,
    arm: Arm,
    step: int,
    text: str,
    paper: Trained | None,
    data: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Row]:
    """Return the row of an arm's metrics at a step, or nothing if no seed has reached it."""
    shown = experiment.seeds if seeds is None else seeds
    runs = {seed: experiment.trainings.get((arm.name, seed)) for seed in shown}
    metrics = {seed: at_step(run, step) for seed, run in runs.items() if run is not None}
    if not any(metrics.values()):
        return []
    entries, numbers = [words(text)], {"arm": arm.name, "step": step, **(data or {})}
    for key, (_, digits) in _COLUMNS.items():
        mean = mean_point({seed: by_key[key] for seed, by_key in metrics.items() if key in by_key})
        printed = (getattr(paper, _PRINTED.get(key, ""), None) or "") if experiment.is_paper else ""
        is_zero = key == "weight" and not arm.has_feedback  # by definition, not by measurement
        entries.append(Entry("0", paper=printed) if is_zero else mean_entry(mean, digits, experiment, printed))
        numbers[key] = mean and asdict(mean.summary)
    return [Row(entries, numbers)]


def _trained_table(name: str, title: str, step: int, first: str, rows: Sequence[Row]) -> Table:
    """Return the table without columns that are empty in every row."""
    filled = [row.entries for row in rows if row.entries]
    kept = [i for i in range(len(filled[0])) if any(e[i].text != NONE or e[i].paper for e in filled)]
    heads = [Head(first, number=False), *(head for head, _ in _COLUMNS.values())]
    shown = [replace(row, entries=[row.entries[i] for i in kept] if row.entries else []) for row in rows]
    averaged = f"means over the {window(step)} steps up to" if window(step) > 1 else "values at"
    caption = (
        f"The epoch mean, which the public code logs, runs from the start of the epoch to step {step:,}. Recent PPL, "
        f"recent NLL, weight and angles are {averaged} that step. Validation is the last one up to it. {PLUS_MINUS}"
    )
    remarks = notes(shown)
    if any(entry.paper for row in shown for entry in row.entries):
        remarks.append(
            "The paper does not say how it measured PPL and NLL. They stand with the epoch mean, because the public "
            "code logs that mean."
        )
    return Table(name, title, caption, [heads[i] for i in kept], shown, notes=remarks)


def run_table(runs: Mapping[str, Training]) -> Table:
    """Return the last metrics of training runs, each at its own last step."""
    rows = []
    for name, training in runs.items():
        metrics = at_step(training, training.done)
        entries = [words(name), Entry(f"{training.done:,}")]
        entries += [Entry(fixed(metrics.get(key), digits)) for key, (_, digits) in _COLUMNS.items()]
        rows.append(Row(entries, {"run": name, "step": training.done, **metrics}))
    heads = [Head("Run", number=False), Head("Step"), *(head for head, _ in _COLUMNS.values())]
    kept = [i for i in range(len(heads)) if any(row.entries[i].text != NONE for row in rows)]
    shown = [replace(row, entries=[row.entries[i] for i in kept]) for row in rows]
    caption = (
        "The epoch mean runs from the start of the epoch. The recent PPL and NLL, the weight and the angles are means "
        "over the last tenth of the steps (10 to 100 steps); a single step is noisy. Validation is the last one."
    )
    return Table("last-metrics", "Metrics at the end", caption, [heads[i] for i in kept], shown)


def settings_table(runs: Mapping[str, Training]) -> Table | None:
    """Return the settings in which training runs differ."""
    keys = dict.fromkeys(key for training in runs.values() for key in training.settings)
    values = {key: [training.settings.get(key) for training in runs.values()] for key in keys}
    differing = {key: some for key, some in values.items() if len(set(map(repr, some))) > 1}
    rows = [
        Row([words(key), *(words(NONE if value is None else str(value)) for value in some)], {"setting": key})
        for key, some in differing.items()
    ]
    heads = [Head("Setting", number=False), *(Head(name, number=False) for name in runs)]
    caption = "All other settings are equal."
    return Table("settings", "Settings that differ", caption, heads, rows) if rows else None


def run_score_tables(training: Training) -> list[Table]:
    """Return the scores of a run's samples and its held-out bounds, as `arcmask evaluate` wrote them into the run."""
    rows: list[Row] = []
    for source, (number, scores) in training.sets.items():
        rows.append(Row([], heading=f"{source}, {count(number, 'sample')}", rule=bool(rows)))
        for name, score in scores.items():
            kind = KINDS.get(name, Kind(name, ""))
            depends = ", ".join(str(score.details[key]) for key in kind.depends[:1] if key in score.details)
            shown = NONE if score.interval is None else interval(*score.interval, kind.digits)
            entries = [words(kind.label), Entry(fixed(score.value, kind.digits)), Entry(shown), words(depends)]
            rows.append(Row(entries, {"source": source, "score": name, "value": score.value}))
    heads = [Head("Score", number=False), Head("Value"), Head("95 % interval"), Head("Depends on", number=False)]
    caption = "Intervals are bootstrap intervals over the samples."
    tables = [Table("scores", "Scores of the samples", caption, heads, rows)] if rows else []
    return tables + _bound_tables(training)


def _bound_tables(training: Training) -> list[Table]:
    names = {"plain": "Plain", "two_pass": "As used (two-pass)"}
    rows = [
        Row(
            [words(names[way])]
            + [Entry(fixed(bound.get(key), digits)) for key, (_, digits) in _BOUND_UNITS.items()]
            + [Entry(fixed(bound.get("standard_error"), 4)), Entry(f"{bound.get('rows', 0):,}")],
            {"bound": way} | {key: bound.get(key) for key in (*_BOUND_UNITS, "standard_error", "rows")},
        )
        for way, bound in training.bounds.items()
    ]
    texts = ["Bound", *(text for text, _ in _BOUND_UNITS.values()), "Standard error", "Rows"]
    heads = [Head(text, number=number > 0) for number, text in enumerate(texts)]
    caption = (
        "The bound on the negative log-likelihood of held-out text. The standard error is that of the NLL over rows."
    )
    return [Table("likelihood", "Held-out likelihood", caption, heads, rows)] if rows else []


def likelihood_table(experiment: Experiment) -> Table | None:
    """Return the held-out bound of each arm, plain and as the arm is used."""
    rows = []
    for arm in experiment.arms.values():
        entries, data = [words(arm.label)], dict[str, Any](arm=arm.name)
        for way in ("plain", "two_pass"):
            for key, (_, digits) in _BOUND_UNITS.items():
                mean = mean_point(bounds(experiment, arm.name, way, key))
                entries.append(mean_entry(mean, digits, experiment))
                data[f"{way}/{key}"] = mean and asdict(mean.summary)
        if any(entry.text != NONE for entry in entries[1:]):
            rows.append(Row(entries, data))
    if not rows:
        return None
    heads = [Head("Arm", number=False)] + [Head(text) for _ in range(2) for text, _ in _BOUND_UNITS.values()]
    groups = [("", 1), ("Plain", 3), ("As used (two-pass)", 3)]
    caption = (
        "The bound on the negative log-likelihood of held-out text: without feedback (plain), and as each arm is used, "
        f"with feedback if the arm has it. {PLUS_MINUS}"
    )
    remarks = [*notes(rows), *_row_errors(experiment)]
    return Table("likelihood", "Held-out likelihood", caption, heads, rows, groups, remarks)


def _row_errors(experiment: Experiment) -> list[str]:
    """Return a note on the error that comes from the choice of held-out rows, which the seeds do not show."""
    entries = [entry for both in experiment.likelihoods.values() for entry in both.values() if entry]
    errors = [entry["standard_error"] for entry in entries if entry.get("standard_error") is not None]
    if not errors:
        return []
    rows = count(int(max(entry.get("rows") or 0 for entry in entries)), "held-out row")
    error = math.ceil(max(errors) * 1e4) / 1e4
    return [f"All arms use the same {rows}. Their choice adds a standard error of up to {error:.4f} nats."]
