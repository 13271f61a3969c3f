"""The tables of the method: arms, hyper-parameters, operators, and what feedback costs."""

from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from arcmask.diagnostics.cost import blend_counts, paper_costs
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import ARMS, COMPARISON, HYPERPARAMETERS, IN_TEXT
from arcmask.report.table import Entry, Head, Row, Table, words
from arcmask.report.tables import notes
from arcmask.report.wording import NONE, fixed, listed, number

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
_OF_FEEDBACK = ("top_k", "karcher_steps", "gate_probability", "band", "band_reading")
_OF_LEARNED_WEIGHT = ("scale", "centre", "steepness", "confidence_learning_rate")
_EXACT = "exact limit"  # in place of the paper's tolerances
# What the paper does not say.
_OPEN = {
    "batch_size": "Batch",
    "warm_up": "Warm-up steps",
    "curve": "Curve of the learning rate",
    "beta2": "Second beta of AdamW",
    "weight_decay": "Weight decay",
    "clip": "Maximum gradient norm",
    "ema": "Decay of the averaged weights",
    "dropout": "Dropout",
    "band_reading": "Reading of the band",
    "rule": "Sampling rule",
    "top_p": "Top-p of sampling",
}
_COMPARED = {
    "domain": "Interpolation domain",
    "path": "Interpolation type",
    "mean": "Aggregation of the candidates",
    "input": "Input of the backbone",
    "settings": "Additional hyper-parameters",
    "overhead": "Overhead per masked position",
}


def arm_table(experiment: Experiment) -> Table:
    """Return the settings of each arm: the main ones, and all others in which the trained arms differ."""
    arms = [*experiment.arms.values(), *experiment.ablations.values()]
    trained = [arm for arm in arms if arm.kind == "trained"]
    every = dict.fromkeys(key for arm in trained for key in arm.train)
    differing = [key for key in every if len({repr(arm.train.get(key)) for arm in trained}) > 1]
    differing += ["temperature"] if len({arm.temperature for arm in arms}) > 1 else []
    shown = _SETTINGS | {key: key.replace("_", " ") for key in differing if key not in _SETTINGS}
    rows = []
    for arm in arms:
        mark = " (ablation, first seed)" if arm.name in experiment.ablations else ""
        entries = [words(arm.label + (" (baseline)" if arm.name == experiment.baseline else mark))]
        entries += [Entry(_setting(key, arm), number=key != "operator") for key in shown]
        rows.append(Row(entries, {"arm": arm.name, "label": arm.label, "train": dict(arm.train), "tune": arm.tune}))
    heads = [Head("Arm", number=False)] + [Head(text, number=key != "operator") for key, text in shown.items()]
    caption = "Each row is one configuration. Settings that are not shown are equal in all trained arms."
    return Table("arms", "Arms", caption, heads, rows)


def _setting(key: str, arm: Arm) -> str:
    """Return a setting of an arm as text, or a dash if it has no effect."""
    if key == "operator":
        return arm.operator
    if key == "fixed_weight":
        fitted, value = "tuned" if arm.kind == "tuned" else "learned", arm.train.get(key)
        return "0" if not arm.has_feedback else fitted if value is None else str(value)
    if key == "temperature":
        return str(arm.temperature)
    return _text(arm.train[key]) if _has_effect(key, arm) else NONE


def _has_effect(key: str, arm: Arm) -> bool:
    """Whether an arm has a setting that changes its result."""
    is_learned = arm.has_feedback and arm.train.get("fixed_weight") is None
    unused = (
        (key in _OF_LEARNED_WEIGHT and not is_learned)
        or (key in _OF_FEEDBACK and not arm.has_feedback)
        or (key == "karcher_steps" and arm.record is not None and not arm.record.uses_steps)
    )
    return arm.train.get(key) is not None and not unused


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def hyperparameter_table(experiment: Experiment) -> Table | None:
    """Return the paper's table of hyper-parameters, with what its text says and what it leaves open; None untrained."""
    if not any(arm.kind == "trained" for arm in experiment.arms.values()):
        return None
    opened = {key: (name, "", None) for key, name in _OPEN.items()}
    groups = {"In the paper\u2019s table": HYPERPARAMETERS, "In its text": IN_TEXT, "Not in the paper": opened}
    rows: list[Row] = []
    for heading, group in groups.items():
        new = []
        for key, (name, symbol, paper) in group.items():
            values = _values(experiment, key)
            ours = listed(map(_text, values)) if values else NONE
            is_other = isinstance(paper, (int, float)) and not all(_is_near(value, paper) for value in values)
            entries = [words(name), words(symbol), Entry(ours, "differs" if is_other else "", number=False)]
            entries.append(words(_text(paper) if paper is not None else NONE))
            new.append(Row(entries, {"setting": key, "values": values, "paper": paper}))
        rows += [Row([], heading=heading, rule=bool(rows)), *new]
    heads = [Head(text, number=False) for text in ("Hyper-parameter", "Symbol", "This experiment", "Paper")]
    caption = (
        "Settings of all arms in which they have an effect, beside the defaults of the paper. The operators use exact "
        "limits in place of the paper\u2019s two tolerances."
    )
    return Table("hyperparameters", "Hyper-parameters", caption, heads, rows, folded=True)


def _values(experiment: Experiment, key: str) -> list[Any]:
    """Return the different values of a setting in the runs, or in the plan."""
    if key in ("clamp", "collinear"):
        return [_EXACT]
    plan = {**experiment.plan, **(experiment.plan.get("sampling") or {})}
    if key in ("seeds", "budgets"):
        return [list(plan[key])] if plan[key] else []
    if key in plan:
        return [] if plan[key] is None else [plan[key]]
    values = []
    for arm in experiment.arms.values():
        if _has_effect(key, arm) and (key != "operator" or arm.has_feedback):
            # A run stores as numbers what its plan leaves to be computed.
            runs = [run for (name, _), run in experiment.trainings.items() if name == arm.name]
            values += [run.settings.get(key) for run in runs] or [arm.train[key]]
    values = [value for place, value in enumerate(values) if value not in values[:place]]
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else values


def _is_near(value: Any, paper: float) -> bool:
    return not isinstance(value, (int, float)) or abs(value - paper) <= 1e-3 * abs(paper)


def operator_table(experiment: Experiment) -> Table | None:
    """Return the appendix's comparison of operators, for those of the arms that are part of the package."""
    arms = _one_per_operator(experiment)
    if not arms:
        return None
    rows = []
    for key, name in _COMPARED.items():
        entries = [words(name)]
        for arm in arms:
            text, is_there = _property(experiment, key, arm), experiment.is_paper and arm.operator in ARMS[1:]
            paper = COMPARISON[key][ARMS[1:].index(arm.operator)] if is_there else ""
            entries.append(Entry(text, paper="" if paper == text else paper, number=False))
        rows.append(Row(entries, {"row": key} | {a.operator: e.text for a, e in zip(arms, entries[1:], strict=True)}))
    heads = [Head("", number=False), *(Head(arm.record.label, number=False) for arm in arms if arm.record)]
    caption = "How the operators of the arms differ."
    return Table("operators", "Operators", caption, heads, rows, notes=notes(rows))


def _one_per_operator(experiment: Experiment) -> list[Arm]:
    """Return the first arm of each operator with feedback that the package has."""
    arms = [arm for arm in experiment.arms.values() if arm.has_feedback and arm.record is not None]
    return list({arm.operator: arm for arm in reversed(arms)}.values())[::-1]


def _property(experiment: Experiment, key: str, arm: Arm) -> str:
    record = arm.record
    assert record is not None
    if key == "overhead":
        flops, trigonometric = _counted(experiment, arm)
        return NONE if flops is None else f"{flops:,.0f} flops, {trigonometric:.0f} trigonometric calls"
    return {
        "domain": "sphere of the mask\u2019s norm" if record.keeps_norm else "embedding space",
        "path": record.path or record.about,
        "mean": record.mean or NONE,
        "input": "dense (B, L, D) embeddings",
        "settings": "Karcher steps" if record.uses_steps else "none",
    }[key]


def _width(experiment: Experiment) -> int | None:
    """Return the width of the embeddings, which the inspection of the base records."""
    width = experiment.inspected.get("cost", {}).get("width")
    return None if width is None else int(width)


def _counted(experiment: Experiment, arm: Arm) -> tuple[float | None, float | None]:
    """Return flops and trigonometric calls of an arm's operator per masked position, counted while it runs."""
    width, settings = _width(experiment), {**(arm.tune or {}), **arm.train}
    if width is None or arm.record is None or not arm.has_feedback:
        return None, None
    flops, trigonometric, unknown = blend_counts(
        arm.record, width, settings.get("top_k", 3), settings.get("karcher_steps", 3)
    )
    return (None, None) if unknown else (flops, trigonometric)


def overhead_table(experiment: Experiment) -> Table | None:
    """Return what feedback costs: by the paper's formulas, counted, and measured in training and sampling."""
    rows = [_overhead_row(experiment, arm) for arm in experiment.arms.values()]
    heads = [Head("Arm", number=False)]
    heads += [Head("formula"), Head("counted")] * 2 + [Head("time", "\u00b5s"), Head("passes")]
    heads += [Head("plain", "\u00b5s/token"), Head("feedback", "\u00b5s/token"), Head("calls"), Head("time", "ms/call")]
    if not any(entry.text != NONE for row in rows for entry in row.entries[1:]):
        return None
    groups = [("", 1), ("FLOPs", 2), ("Trig. calls", 2), ("", 1), ("Training step", 3), ("Sample", 2)]
    at = f" at T = {experiment.budgets[-1]}" if experiment.budgets else ""
    caption = (
        "FLOPs, trigonometric calls and time of the operator are per masked position: by the paper\u2019s formulas, "
        "counted while the operator runs, and measured. A training step with feedback has two forward passes; times "
        f"are medians over steps. A sample{at} needs as many denoiser calls with feedback as without."
    )
    reasons = []
    if _width(experiment) is None:
        reasons.append("The cost of the operators is missing, because the base model was not inspected.")
    if experiment.budgets and not experiment.timings:
        reasons.append("The time of sampling is missing, because the samples were drawn without recording it.")
    return Table("overhead", "Overhead of feedback", caption, heads, rows, groups, reasons)


def _overhead_row(experiment: Experiment, arm: Arm) -> Row:
    width, settings = _width(experiment), {**(arm.tune or {}), **arm.train}
    formulas: dict[str, tuple[int, int]] = {}
    if width is not None and arm.has_feedback:
        formulas = paper_costs(width, settings.get("top_k", 3), settings.get("karcher_steps", 3))
    formula = formulas.get(arm.operator, (None, None))
    counted = _counted(experiment, arm)
    inspected = experiment.inspected.get("cost", {})
    is_as_inspected = settings.get("top_k", 3) == inspected.get("candidates") and (
        settings.get("karcher_steps", 3) == inspected.get("karcher_steps") or not (arm.record and arm.record.uses_steps)
    )
    cost = inspected.get("operators", {}).get(arm.operator, {}) if is_as_inspected and arm.has_feedback else {}
    data = {
        "paper_flops": formula[0],
        "flops": counted[0],
        "paper_trigonometric": formula[1],
        "trigonometric": counted[1],
        "operator_microseconds": cost.get("microseconds"),
        **_training_cost(experiment, arm),
        **_sampling_cost(experiment, arm),
    }
    digits = {"operator_microseconds": 2, "passes": 2, "plain": 2, "with_feedback": 2, "milliseconds": 2}
    entries = [Entry(_with_commas(value, digits.get(key, 0))) for key, value in data.items()]
    return Row([words(arm.label), *entries], {"arm": arm.name} | data)


def _with_commas(value: float | None, digits: int) -> str:
    return fixed(value, digits) if value is None or digits else f"{value:,.0f}"


def _training_cost(experiment: Experiment, arm: Arm) -> dict[str, float | None]:
    """Return the forward passes per step, and the median microseconds per token of steps without and with feedback."""
    runs = [run for (name, _), run in experiment.trainings.items() if name == arm.name]
    records = [record for run in runs for record in run.records]
    fed = [bool(record.get("feedback")) and arm.has_feedback for record in records]
    return {
        "passes": 1 + fmean(fed) if records else None,
        "plain": _per_token(record for record, has_draft in zip(records, fed, strict=True) if not has_draft),
        "with_feedback": _per_token(record for record, has_draft in zip(records, fed, strict=True) if has_draft),
    }


def _per_token(records: Iterable[dict[str, Any]]) -> float | None:
    times = [1e6 / record["tokens_per_second"] for record in records if record.get("tokens_per_second")]
    return median(times) if times else None


def _sampling_cost(experiment: Experiment, arm: Arm) -> dict[str, float | None]:
    """Return the denoiser calls per sample at the largest budget, and the milliseconds of a call."""
    cells = [(arm.name, seed, budget) for seed in experiment.seeds for budget in experiment.budgets[-1:]]
    calls = [float(record["calls"]) for cell in cells for record in experiment.samples.get(cell, [])]
    timings = [experiment.timings[cell] for cell in cells if cell in experiment.timings]
    seconds = [timing["seconds"] / timing["calls"] for timing in timings if timing["calls"]]
    return {"calls": fmean(calls) if calls else None, "milliseconds": 1e3 * median(seconds) if seconds else None}
