"""Print the tables of what factorial.py has measured so far.

    python docs/results/factorial_tables.py            # prints them
    python docs/results/factorial_tables.py --write    # replaces those of README.md

A main effect of an ingredient is the mean of the four operators that have it minus the mean of the other four. Effects
are computed seed by seed, or by a jackknife over seeds where they are no averages (quality at equal diversity). ± is a
95 % confidence interval (Student's t over seeds). Holm's correction is over all effects of the table.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from factorial import BOUND_WEIGHTS, OPERATORS, SAMPLE_WEIGHTS, TEMPERATURES, file_of
from scipy.interpolate import PchipInterpolator

from arcmask.evaluation import paired_difference
from arcmask.files import write_whole

MODELS = {"sotu-tiny": 4, "antiberty": 3}  # digits behind the point
TURN = 20.0  # degrees
WEIGHT = BOUND_WEIGHTS.index(0.3)
EFFECT_WEIGHTS = (0.1, 0.3, 0.5)
INGREDIENTS = {"mean": "Fréchet", "path": "arc", "norm": "mask"}  # the paper's choice of each
EFFECTS = {
    "mean": "Fréchet minus Euclidean",
    "path": "arc minus chord",
    "norm": "mask's minus own",
    "paper": "spherical minus linear",
}
DIVERSITY = {"sotu-tiny": ("entropy",), "antiberty": ("spread", "entropy")}
Statistic = Callable[[Sequence[int]], dict[str, float]]  # of seeds: a value for each operator


@dataclass(frozen=True)
class Estimate:
    """A value with half its 95 % interval and its p-value."""

    value: float
    half_width: float
    p_value: float

    def text(self, digits: int) -> str:
        return f"{self.value:+.{digits}f} ± {self.half_width:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def jackknife(values: Callable[[Sequence[int]], float], seeds: Sequence[int]) -> Estimate:
    """Return a value of all seeds with its jackknife interval; for an average over seeds it is the usual t-interval."""
    n, whole = len(seeds), values(seeds)
    pseudo = [n * whole - (n - 1) * values([seed for seed in seeds if seed != left_out]) for left_out in seeds]
    # Centred on the value itself: with few seeds the jackknife's own correction of bias is noise.
    summary = paired_difference(pseudo, [float(np.mean(pseudo)) - whole] * n)
    return Estimate(whole, summary.half_width or math.nan, 1.0 if summary.p_value is None else summary.p_value)


def effect(name: str, by_operator: dict[str, float]) -> float:
    """Return a main effect, or the difference between the paper's operator and LERP."""
    if name == "paper":
        return by_operator["spherical"] - by_operator["linear"]
    index = list(INGREDIENTS).index(name)
    has = {operator: levels[index] == INGREDIENTS[name] for levels, operator in OPERATORS.items()}
    sides = [[by_operator[operator] for operator in has if has[operator] == side] for side in (True, False)]
    return float(np.mean(sides[0]) - np.mean(sides[1]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's step-down correction."""
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(np.arange(len(order), 0, -1) * np.array(p_values)[order]).clip(max=1)
    return [float(adjusted[rank]) for rank in np.argsort(order)]


@cache
def load(part: str) -> dict[str, Any]:
    """Return the cells of a part that were measured."""
    return json.loads(file_of(part).read_text()) if file_of(part).exists() else {}


def seeds_of(part: str, model: str, arms: Sequence[str]) -> list[int]:
    """Return the seeds of which all arms were measured."""
    cells = load(part)
    return [seed for seed in range(100) if all(f"{model} {seed}{arm}" in cells for arm in arms)]


def bound_change(model: str, at: int) -> Statistic:
    """Return the change of the bound by operator, at a weight of the list."""
    cells = load("bound")
    return lambda seeds: {
        name: float(np.mean([cells[f"{model} {seed}"]["change"][name][at] for seed in seeds]))
        for name in OPERATORS.values()
    }


def bound_at_best(model: str) -> Statistic:
    """Return the change of the bound by operator at the weight that is best for it, over all seeds together."""
    columns = [bound_change(model, at) for at in range(len(BOUND_WEIGHTS))]
    return lambda seeds: {name: min(column(seeds)[name] for column in columns) for name in OPERATORS.values()}


def bound_at_turn(model: str) -> Statistic:
    """Return the change of the bound by operator where its mean turn is TURN: an interpolation over the weights."""
    cells = load("bound")

    def at_turn(name: str, seed: int) -> float:
        cell = cells[f"{model} {seed}"]
        return float(PchipInterpolator([0.0, *cell["turn"][name]], [0.0, *cell["change"][name]])(TURN))

    return lambda seeds: {name: float(np.mean([at_turn(name, s) for s in seeds])) for name in OPERATORS.values()}


def pooled(model: str, arm: str, seeds: Sequence[int], diversity: str) -> tuple[float, float]:
    """Return the diversity and the quality of the samples of an arm; quality is in per cent, or in nats per residue."""
    above, below, total, count = np.sum([sums(f"{model} {seed} {arm}", diversity) for seed in seeds], axis=0)
    return float(total / count), float(above / below) * (100 if model == "sotu-tiny" else 1)


@cache
def sums(cell: str, diversity: str) -> tuple[float, float, float, int]:
    """Return numerator and denominator of the quality of a cell, and the sum of its diversities and their number."""
    content = load("generation")[cell]
    above, below = np.sum(content["quality"], axis=0)
    return float(above), float(below), sum(content[diversity]), len(content[diversity])


def gain(model: str, weight: float, diversity: str | None) -> Statistic:
    """Return the change of quality by operator: from plain sampling at temperature 1, or at equal diversity."""

    def gains(seeds: Sequence[int]) -> dict[str, float]:
        key = diversity or "entropy"
        plain = np.array([pooled(model, f"none {temperature}", seeds, key) for temperature in TEMPERATURES])
        slope, level = np.polyfit(plain[:, 0], plain[:, 1], 1)
        result = {}
        for name in OPERATORS.values():
            spread, quality = pooled(model, f"{name} {weight}", seeds, key)
            result[name] = quality - (plain[0, 1] if diversity is None else level + slope * spread)
        return result

    return gains


def simple(part: str, model: str, key: str) -> Statistic:
    """Return a value of the cells by operator, averaged over seeds; of operators that were measured."""
    cells = load(part)
    return lambda seeds: {
        name: float(np.mean([cells[f"{model} {seed} {name}"][key] for seed in seeds]))
        for name in OPERATORS.values()
        if f"{model} {seeds[0]} {name}" in cells
    }


@dataclass(frozen=True)
class Question:
    """A row of the table of effects: a quantity of every operator, on seeds."""

    model: str
    label: str
    statistic: Statistic
    seeds: list[int]
    digits: int
    unit: str


def questions() -> list[Question]:
    """Return the rows of the table, as far as they were measured."""
    rows = []
    names = [f" {name}" for name in OPERATORS.values()]
    for model, digits in MODELS.items():
        seeds = seeds_of("bound", model, [""])
        for weight in EFFECT_WEIGHTS:
            statistic = bound_change(model, BOUND_WEIGHTS.index(weight))
            rows.append(Question(model, f"bound at weight {weight:g}", statistic, seeds, digits, "nats"))
        turned, best = f"bound at a turn of {TURN:g}°", "bound at the operator's best weight"
        rows.append(Question(model, turned, bound_at_turn(model), seeds, digits, "nats"))
        rows.append(Question(model, best, bound_at_best(model), seeds, digits, "nats"))
        tuned = seeds_of("tuned", model, names)
        rows.append(Question(model, "bound, tuned", simple("tuned", model, "change"), tuned, digits, "nats"))
        continued = seeds_of("continued", model, names)
        rows.append(
            Question(model, "bound, continued", simple("continued", model, "two_pass"), continued, digits, "nats")
        )
        arms = [f" none {temperature}" for temperature in TEMPERATURES]
        arms += [f"{name} {weight}" for name in names for weight in SAMPLE_WEIGHTS]
        drawn, unit = seeds_of("generation", model, arms), "points" if model == "sotu-tiny" else "nats"
        for weight in SAMPLE_WEIGHTS:
            for diversity in DIVERSITY[model]:
                statistic = gain(model, weight, diversity)
                label = f"samples at weight {weight:g}, equal {diversity}"
                rows.append(Question(model, label, statistic, drawn, 1 if unit == "points" else 3, unit))
    return [row for row in rows if len(row.seeds) > 2]


def effects_table(rows: list[Question]) -> tuple[list[str], dict[tuple[str, str, str], Estimate]]:
    """Return the table of effects, and the effects by model, label and name."""
    found = {
        (row.model, row.label, name): jackknife(lambda s, row=row, name=name: effect(name, row.statistic(s)), row.seeds)
        for row in rows
        for name in EFFECTS
    }
    adjusted = dict(zip(found, holm([one.p_value for one in found.values()]), strict=True))
    lines = [f"| model | measure | {' | '.join(EFFECTS.values())} |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = []
        for name in EFFECTS:
            text = found[row.model, row.label, name].text(row.digits)
            cells.append(f"**{text}**" if adjusted[row.model, row.label, name] < 0.05 else text)
        lines.append(f"| `{row.model}` | {row.label} ({len(row.seeds)} seeds), {row.unit} | {' | '.join(cells)} |")
    kept = sum(p < 0.05 for p in adjusted.values())
    lines += ["", f"Bold marks p < 0.05 after Holm's correction for all {len(found)} effects: {kept} of them."]
    return lines, found


def bound_table(model: str) -> list[str]:
    """Return the change of the bound by operator and weight, and the turn and norm at weight 0.3."""
    cells, seeds, digits = load("bound"), seeds_of("bound", model, [""]), MODELS[model]
    lines = [f"| mean | path | norm | operator | {' | '.join(f'{w:g}' for w in BOUND_WEIGHTS)} | turn | norm |"]
    lines.append("|---" * (6 + len(BOUND_WEIGHTS)) + "|")
    for (mean, path, norm), name in OPERATORS.items():
        changes = [
            jackknife(lambda s, at=at, name=name: bound_change(model, at)(s)[name], seeds).text(digits)
            for at in range(len(BOUND_WEIGHTS))
        ]
        turn, ratio = (np.mean([cells[f"{model} {s}"][key][name][WEIGHT] for s in seeds]) for key in ("turn", "norm"))
        label = "mask's" if norm == "mask" else norm
        lines.append(f"| {mean} | {path} | {label} | `{name}` | {' | '.join(changes)} | {turn:.1f}° | {ratio:.2f} |")
    return lines


def samples_table(model: str) -> list[str]:
    """Return quality and diversity of plain samples and of two operators; the figure shows all eight."""
    cells = load("generation")
    arms = [("none", temperature) for temperature in TEMPERATURES]
    arms += [(name, weight) for name in ("linear", "spherical") for weight in SAMPLE_WEIGHTS]
    seeds = next(row.seeds for row in questions() if row.model == model and row.label.startswith("samples"))
    is_words, first = model == "sotu-tiny", DIVERSITY[model][0]
    quality = "real words, %" if is_words else "NLL per residue"
    more = [] if is_words else ["spread", "distinct", "nearest"]
    columns = ["sampling", quality, "difference", f"at equal {first}", "entropy", *more]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    digits = 1 if is_words else 3
    for name, setting in arms:
        here = [cells[f"{model} {seed} {name} {setting}"] for seed in seeds]
        entropy, value = pooled(model, f"{name} {setting}", seeds, "entropy")
        changes = ["", ""]
        if name != "none":
            for index, diversity in enumerate((None, first)):
                statistic = gain(model, setting, diversity)
                changes[index] = jackknife(lambda s, name=name, f=statistic: f(s)[name], seeds).text(digits)
        extra = []
        if not is_words:
            spread, nearest = (np.mean([v for cell in here for v in cell[key]]) for key in ("spread", "nearest"))
            total = sum(len(cell["nearest"]) for cell in here)
            extra = [f"{spread:.3f}", f"{sum(cell['distinct'] for cell in here)} of {total}", f"{nearest:.1f}"]
        label = f"plain, temperature {setting:g}" if name == "none" else f"`{name}`, weight {setting:g}"
        row = [label, f"{value:.{digits}f}", *changes, f"{entropy:.3f}", *extra]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def bounds_table(part: str) -> list[str]:
    """Return by operator the bound of tuned feedback, or after continued training, for each model."""
    key = {"tuned": "change", "continued": "two_pass"}[part]
    lines = []
    for model, digits in MODELS.items():
        arms = [name for name in ("none", *OPERATORS.values()) if f"{model} 0 {name}" in load(part)]
        seeds = seeds_of(part, model, [f" {name}" for name in arms])
        cells = load(part)
        for name in arms if len(seeds) > 2 else []:
            if name == "none":
                continue
            base = [0.0 if part == "tuned" else cells[f"{model} {seed} none"][key] for seed in seeds]
            change = paired_difference([cells[f"{model} {seed} {name}"][key] for seed in seeds], base)
            text = Estimate(change.mean, change.half_width or math.nan, 1.0).text(digits)
            lines.append(f"| `{model}` | `{name}` | {text} | {len(seeds)} |")
    head = ["| model | operator | change of the bound, nats per token | seeds |", "|---|---|---|---|"]
    return [*head, *lines] if lines else []


def tables() -> dict[str, list[str]]:
    """Return every table by its title, as lines of markdown."""
    found = {"effects": effects_table(questions())[0]}
    found |= {f"bound, {model}": bound_table(model) for model in MODELS if len(seeds_of("bound", model, [""])) > 2}
    complete = {row.model for row in questions() if row.label.startswith("samples")}
    found |= {f"samples, {model}": samples_table(model) for model in MODELS if model in complete}
    return found | {part: bounds_table(part) for part in ("tuned", "continued")}


def filled(page: str, found: dict[str, list[str]]) -> str:
    """Return a page with these tables: each stands between `<!-- table: TITLE -->` and `<!-- end -->`."""
    for title, lines in found.items():
        begin = f"<!-- table: {title} -->"
        if begin in page:
            before, _, rest = page.partition(begin)
            page = "\n".join([f"{before}{begin}", "", *lines, "", f"<!-- end -->{rest.partition('<!-- end -->')[2]}"])
    return page


def publish(found: dict[str, list[str]]) -> None:
    """Print tables; with --write, write them into the page instead."""
    if "--write" in sys.argv:
        page = Path(__file__).with_name("README.md")
        write_whole(page, filled(page.read_text(), found).encode())
        return
    for title, lines in found.items():
        print(f"\n{title}\n", *lines, sep="\n")


if __name__ == "__main__":
    publish(tables())
