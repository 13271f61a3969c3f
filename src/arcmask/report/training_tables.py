"""The tables of training: settings of the arms, feedback regimes, ablations, and the held-out likelihood."""

import math
from collections.abc import Mapping
from typing import Any

from arcmask.evaluation.statistics import Summary, summarize
from arcmask.report.comparisons import Comparison, pairs
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import REGIMES, Trained, paper_ablation, paper_arm
from arcmask.report.quantities import BOUNDS, bounds
from arcmask.report.table import Entry, Head, Row, Table
from arcmask.report.tables import comparison_data, difference_entry
from arcmask.report.training import at_step, read_step, window
from arcmask.report.wording import MINUS, NONE, count, plus_minus

# Key in a training's metrics -> heading, digits, the paper's column.
_COLUMNS = {
    "perplexity": (Head("PPL", "training"), 3, "perplexity"),
    "nll": (Head("NLL", "training"), 4, "nll"),
    "validation_perplexity_plain": (Head("PPL", "validation, plain"), 3, None),
    "validation_perplexity_feedback": (Head("PPL", "validation, two-pass"), 3, None),
    "weight": (Head("Weight"), 4, "weight"),
    "angle": (Head("Angle\u00b0", "Fréchet"), 2, "angle"),
    "euclidean_angle": (Head("Angle\u00b0", "Euclidean"), 2, None),
}
ABLATED = {"karcher_steps": "Karcher steps", "top_k": "Candidates k", "fixed_weight": "Fixed weight"}


_SETTINGS = {
    "operator": "Operator",
    "fixed_weight": "Weight",
    "top_k": "k",
    "karcher_steps": "Karcher steps",
    "gate_probability": "Gate",
    "steps": "Steps",
    "batch_size": "Batch",
    "learning_rate": "Rate",
}


def arm_table(experiment: Experiment) -> Table:
    """What was trained in each arm: the settings that matter most, and all others in which the arms differ."""
    arms = list(experiment.arms.values())
    every = dict.fromkeys(key for arm in arms for key in arm.train)
    differing = [key for key in every if len({repr(arm.train.get(key)) for arm in arms}) > 1]
    shown = _SETTINGS | {key: key.replace("_", " ") for key in differing if key not in _SETTINGS}
    rows = []
    for arm in arms:
        entries = [Entry(arm.label + (" (baseline)" if arm.name == experiment.baseline else ""), number=False)]
        entries += [Entry(_setting(key, arm.train), number=key != "operator") for key in shown]
        rows.append(Row(entries, {"arm": arm.name, "label": arm.label, "train": dict(arm.train)}))
    heads = [Head("Arm", number=False)] + [Head(text, number=key != "operator") for key, text in shown.items()]
    caption = "Each row is one feedback configuration; every training setting that is not shown is the same in all."
    return Table("arms", "The arms", caption, heads, rows)


def _setting(key: str, train: Mapping[str, Any]) -> str:
    without = train.get("operator") == "none"
    if key == "fixed_weight":
        return "0" if without else "learned" if train.get(key) is None else str(train[key])
    learned = not without and train.get("fixed_weight") is None
    if key in ("scale", "centre", "steepness", "confidence_learning_rate") and not learned:
        return NONE
    if without and key in ("top_k", "karcher_steps", "gate_probability"):
        return NONE
    if key == "karcher_steps" and train.get("operator") in ("linear", "renormalized", "spherical-euclidean"):
        return NONE
    value = train.get(key)
    if value is None:
        return NONE
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return MINUS + text[1:] if text.startswith("-") else text


def regime_table(experiment: Experiment) -> Table | None:
    """The paper's comparison of feedback regimes."""
    step = read_step(experiment)
    arms = list(experiment.arms.values())
    rows = [] if step is None else _trained_rows(experiment, arms, step, _regime_paper)
    if step is None or not rows:
        return None
    return _trained_table("regimes", f"Feedback regimes at step {step:,}", step, Head("Arm", number=False), rows)


def _regime_paper(arm: Arm) -> Trained | None:
    return REGIMES.get(paper_arm(arm.train) or "")


def ablation_tables(experiment: Experiment) -> list[Table]:
    """A table for each setting in which arms differ that are otherwise the same."""
    found, step = [], read_step(experiment)
    for setting, label in ABLATED.items():
        families: dict[str, list[Arm]] = {}
        for arm in experiment.arms.values():
            if arm.train.get("operator") != "none" and arm.train.get(setting) is not None:
                others = {key: value for key, value in arm.train.items() if key != setting}
                families.setdefault(repr(sorted(others.items())), []).append(arm)
        varied = [sorted(arms, key=lambda arm: arm.train[setting]) for arms in families.values() if len(arms) > 1]
        rows: list[Row] = []
        for arms in varied if step is not None else []:
            assert step is not None
            new = _trained_rows(experiment, arms, step, lambda arm, s=setting: paper_ablation(s, arm.train), setting)
            rows += [Row([], heading=str(arms[0].train["operator"]), rule=bool(rows)), *new] if new else []
        if rows:
            assert step is not None
            name = setting.replace("_", "-")
            found.append(_trained_table(name, f"{label} at step {step:,}", step, Head(label, number=False), rows))
    return found


def _trained_rows(experiment: Experiment, arms: list[Arm], step: int, theirs: Any, setting: str = "") -> list[Row]:
    rows = []
    for arm in arms:
        by_seed = [
            at_step(experiment.trainings[arm.name, seed], step)
            for seed in experiment.seeds
            if (arm.name, seed) in experiment.trainings
        ]
        by_seed = [numbers for numbers in by_seed if numbers]
        if not by_seed:
            continue
        paper = theirs(arm) if experiment.is_paper else None
        entries = [Entry(str(arm.train[setting]) if setting else arm.label, number=False)]
        data: dict[str, Any] = {"arm": arm.name, "step": step} | ({setting: arm.train[setting]} if setting else {})
        for key, (_, digits, name) in _COLUMNS.items():
            values = [numbers[key] for numbers in by_seed if key in numbers]
            summary = summarize(values) if values else None
            printed = "" if paper is None or name is None else getattr(paper, name) or ""
            exact = key == "weight" and arm.train.get("operator") == "none"
            entries.append(_summary_entry(summary, digits, printed, experiment, exact=exact))
            data[key] = None if summary is None else _summary_data(summary)
        rows.append(Row(entries, data))
    return rows


def _summary_entry(
    summary: Summary | None, digits: int, paper: str, experiment: Experiment, *, exact: bool = False
) -> Entry:
    if summary is None:
        return Entry(NONE, paper=paper)
    if exact:  # not measured: without feedback the weight is zero
        return Entry("0", paper=paper)
    under = "no interval" if summary.half_width is None else ""
    if summary.n != len(experiment.seeds):
        under = f"{under} n = {summary.n}".strip()
    return Entry(plus_minus(summary.mean, summary.half_width, digits), under, paper)


def _summary_data(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in ("mean", "std", "half_width", "n")}


def _trained_table(name: str, title: str, step: int, first: Head, rows: list[Row]) -> Table:
    """Columns in which no row has anything are left out."""
    full = [row.entries for row in rows if row.entries]
    kept = [i for i in range(len(full[0])) if i == 0 or any(e[i].text != NONE or e[i].paper for e in full)]
    heads = [first, *(head for head, _, _ in _COLUMNS.values())]
    rows = [
        Row([row.entries[i] for i in kept], row.data, row.heading, row.rule) if row.entries else row for row in rows
    ]
    averaged = window(step)
    over = f"are means over the {averaged} steps up to step {step:,}" if averaged > 1 else f"are those of step {step:,}"
    caption = (
        f"Training PPL and NLL, weight and angles {over}, validation is the last before it; each cell is the mean "
        "\u00b1 half the width of its 95 % interval over seeds."
    )
    notes = []
    if any(entry.paper for row in rows for entry in row.entries):
        notes.append(
            "After \u201cpaper\u201d: what the paper prints; it does not say on which rows it measured PPL and NLL."
        )
    return Table(name, title, caption, [heads[i] for i in kept], rows, notes=notes)


def likelihood_table(experiment: Experiment) -> Table | None:
    """The held-out bound of each arm, plain and as it is used."""
    keys = {"nats": ("NLL", 4), "perplexity": ("PPL", 3), "bits_per_byte": ("Bits/byte", 4)}
    rows = []
    for arm in experiment.arms.values():
        entries, data = [Entry(arm.label, number=False)], {"arm": arm.name}
        for way in ("plain", "two_pass"):
            for key, (_, digits) in keys.items():
                values = list(bounds(experiment, arm.name, way, key).values())
                summary = summarize(values) if values else None
                entries.append(_summary_entry(summary, digits, "", experiment))
                data[f"{way}/{key}"] = None if summary is None else _summary_data(summary)  # type: ignore[assignment]
        if any(entry.text != NONE for entry in entries[1:]):
            rows.append(Row(entries, data))
    if not rows:
        return None
    heads = [Head("Arm", number=False)] + [Head(text) for _ in range(2) for text, _ in keys.values()]
    groups = [("", 1), ("Plain", 3), ("As used (two-pass)", 3)]
    caption = (
        "The bound on held-out rows, without feedback and as each arm is used: with it where the arm has it; each cell "
        "is the mean \u00b1 half the width of its 95 % interval over seeds."
    )
    return Table("likelihood", "Held-out likelihood", caption, heads, rows, groups, _row_errors(experiment))


def _row_errors(experiment: Experiment) -> list[str]:
    """The error that the choice of rows brings, which the spread over seeds does not show."""
    entries = [entry for both in experiment.likelihoods.values() for entry in both.values() if entry]
    errors = [entry["standard_error"] for entry in entries if entry.get("standard_error") is not None]
    if not errors:
        return []
    rows = count(int(max(entry.get("rows") or 0 for entry in entries)), "held-out row")
    return [
        f"The choice of {rows} adds a standard error of up to {math.ceil(max(errors) * 1e4) / 1e4:.4f} nats, the same "
        "rows for all arms."
    ]


def _among(found: list[Comparison]) -> str:
    return f"These are among the {count(len(found), 'comparison')} that are counted with the differences in generation."


def bound_table(experiment: Experiment, found: list[Comparison]) -> Table | None:
    """Paired differences of the held-out bounds."""
    mine = [c for c in found if c.budget is None]
    if not mine:
        return None
    rows = []
    for pair in pairs(experiment):
        by_way = {c.score: c for c in mine if c.pair == pair}
        if by_way:
            entries = [Entry(pair.label, number=False)]
            entries += [difference_entry(by_way.get(f"bound_{way}"), experiment) for way in BOUNDS]
            data: dict[str, Any] = {"first": pair.first.name, "second": pair.second.name}
            rows.append(Row(entries, data | {score: comparison_data(c) for score, c in by_way.items()}))
    heads = [Head("First \u2212 second", number=False), *(Head(f"NLL, {short}") for short, _ in BOUNDS.values())]
    caption = (
        "Differences of the held-out NLL in nats a token, seed by seed, \u00b1 half the width of the 95 % interval; "
        "below zero the first arm is better."
    )
    return Table(
        "likelihood-differences", "Paired differences of the bound", caption, heads, rows, notes=[_among(found)]
    )
