"""The tables of what factorial.py has measured; page.py writes them into README.md.

A main effect of an ingredient is the mean of the four operators that have it minus the mean of the other four. Above 0,
the paper's choice is worse. Effects are computed seed by seed, or by a jackknife over seeds where they are no averages
(quality at equal diversity). ± is a 95 % confidence interval (Student's t over seeds).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
from factorial import BOUND_WEIGHTS, OPERATORS, SAMPLE_SETTINGS, TEMPERATURES, TURN, WEIGHT
from measured import Estimate, beyond_line, jackknife, marked, read_cells, table
from scipy.interpolate import PchipInterpolator

MODELS = {"sotu-tiny": 4, "antiberty": 3}  # digits behind the point
SPHERE = "sotu-sphere"  # of which only the bound is measured
INGREDIENTS = {"mean": "Fréchet", "path": "arc", "norm": "mask"}  # the paper's choice of each
EFFECTS = {
    "mean": "Fréchet minus Euclidean",
    "path": "arc minus chord",
    "norm": "mask's minus own",
    "paper": "spherical minus linear",
}
HIDDEN = {  # an operator that hides what LERP's norm or turn says, and the one that it is compared with
    "norm: the mean of all positions": ("norm-constant", "linear"),
    "norm: that of another position": ("norm-shuffled", "linear"),
    "norm: the mask's": ("renormalized", "linear"),
    "turn: the mean of all positions": ("turn-constant", "renormalized"),
    "turn: that of another position": ("turn-shuffled", "renormalized"),
    "turn: SLERP's": ("spherical-euclidean", "renormalized"),
    "turn: none; norm: the mean of all positions": ("norm-only", "none"),
}
NAMES = [f" {name}" for name in OPERATORS.values()]  # as cells have them
DIVERSITY = {"sotu-tiny": "entropy", "antiberty": "spread"}
Statistic = Callable[[Sequence[int]], dict[str, float]]  # of seeds: a value for each operator


def effect(name: str, by_operator: dict[str, float]) -> float:
    """Return a main effect, or the difference between the paper's operator and LERP."""
    if name == "paper":
        return by_operator["spherical"] - by_operator["linear"]
    index = list(INGREDIENTS).index(name)
    has = {operator: levels[index] == INGREDIENTS[name] for levels, operator in OPERATORS.items()}
    sides = [[by_operator[operator] for operator in has if has[operator] == side] for side in (True, False)]
    return float(np.mean(sides[0]) - np.mean(sides[1]))


def seeds_of(part: str, model: str, arms: Sequence[str]) -> list[int]:
    """Return the seeds of which all arms were measured."""
    cells = read_cells(f"factorial-{part}")
    return [seed for seed in range(100) if all(f"{model} {seed}{arm}" in cells for arm in arms)]


def bound_change(model: str, at: int, part: str = "bound") -> Statistic:
    """Return the change of the bound by operator, at a weight of the list."""
    cells = read_cells(f"factorial-{part}")

    def change(seeds: Sequence[int]) -> dict[str, float]:
        rows = [cells[f"{model} {seed}"]["change"] for seed in seeds]
        return {name: float(np.mean([row[name][at] for row in rows])) for name in rows[0]}

    return change


def bound_at_best(model: str) -> Statistic:
    """Return the change of the bound by operator at its best weight of the list, which the other seeds choose."""
    cells = read_cells("factorial-bound")
    every = {seed: cells[f"{model} {seed}"]["change"] for seed in seeds_of("bound", model, [""])}

    def at_best(name: str, seed: int) -> float:
        others = np.mean([change[name] for other, change in every.items() if other != seed], axis=0)
        return every[seed][name][int(np.argmin(others))]

    return lambda seeds: {name: float(np.mean([at_best(name, seed) for seed in seeds])) for name in OPERATORS.values()}


def bound_at_turn(model: str) -> Statistic:
    """Return the change of the bound by operator where its mean turn is TURN: an interpolation over the weights."""
    cells = read_cells("factorial-bound")

    def at_turn(name: str, seed: int) -> float:
        cell = cells[f"{model} {seed}"]
        return float(PchipInterpolator([0.0, *cell["turn"][name]], [0.0, *cell["change"][name]])(TURN))

    return lambda seeds: {name: float(np.mean([at_turn(name, s) for s in seeds])) for name in OPERATORS.values()}


def changed_bound(part: str, model: str) -> Statistic:
    """Return the change of the bound by operator: from no feedback, or from a training without it."""
    cells = read_cells(f"factorial-{part}")

    def change(seed: int, name: str) -> float:
        cell = cells[f"{model} {seed} {name}"]
        return cell["change"] if part == "tuned" else cell["two_pass"] - cells[f"{model} {seed} none"]["two_pass"]

    return lambda seeds: {name: float(np.mean([change(s, name) for s in seeds])) for name in OPERATORS.values()}


def pooled(model: str, arm: str, seeds: Sequence[int], diversity: str) -> tuple[float, float]:
    """Return the diversity and the quality of the samples of an arm; quality is in per cent, or in nats per residue."""
    above, below, total, count = np.sum([sums(f"{model} {seed} {arm}", diversity) for seed in seeds], axis=0)
    return float(total / count), float(above / below) * (100 if model == "sotu-tiny" else 1)


@cache
def sums(cell: str, diversity: str) -> tuple[float, float, float, int]:
    """Return numerator and denominator of the quality of a cell, and the sum of its diversities and their number."""
    content = read_cells("factorial-generation")[cell]
    above, below = np.sum(content["quality"], axis=0)
    return float(above), float(below), sum(content[diversity]), len(content[diversity])


def gain(model: str, setting: float | str, is_level: bool) -> Statistic:
    """Return the change of quality by operator: from plain sampling at temperature 1, or at equal diversity."""

    def gains(seeds: Sequence[int]) -> dict[str, float]:
        key = DIVERSITY[model]
        plain = [pooled(model, f"none {temperature}", seeds, key) for temperature in TEMPERATURES]
        points = {name: pooled(model, f"{name} {setting}", seeds, key) for name in OPERATORS.values()}
        return {
            name: beyond_line(point, plain) if is_level else point[1] - plain[0][1] for name, point in points.items()
        }

    return gains


def described(setting: float | str) -> str:
    """Return a setting of the samples in words."""
    words = {"tuned": "fitted weights", "turn": f"turn of {TURN:g}°"}
    return words[setting] if isinstance(setting, str) else f"weight {setting:g}"


@dataclass(frozen=True)
class Question:
    """A row of the table of effects: a quantity of every operator, on seeds. Values are multiplied by the sign."""

    model: str
    label: str
    statistic: Statistic
    seeds: list[int]
    digits: int
    sign: int = 1

    def estimate(self, name: str) -> Estimate:
        """Return an effect; above 0, the paper's choice is worse."""
        return jackknife(lambda seeds: self.sign * effect(name, self.statistic(seeds)), self.seeds)


def questions() -> list[Question]:
    """Return the rows of the table, as far as they were measured."""
    rows = []
    for model, digits in (MODELS | {SPHERE: 4}).items():
        seeds = seeds_of("bound", model, [""])
        for weight in (0.3, 0.5):
            statistic = bound_change(model, BOUND_WEIGHTS.index(weight))
            rows.append(Question(model, f"bound, weight {weight:g}", statistic, seeds, digits))
        rows.append(Question(model, f"bound, turn of {TURN:g}°", bound_at_turn(model), seeds, digits))
        rows.append(Question(model, "bound, each operator's best weight", bound_at_best(model), seeds, digits))
        if model == SPHERE:
            continue
        for part, label in (("tuned", "bound, fitted weights"), ("continued", "bound, trained")):
            seeds = seeds_of(part, model, NAMES)
            rows.append(Question(model, label, changed_bound(part, model), seeds, digits))
        for setting in SAMPLE_SETTINGS:
            arms = [f" none {one}" for one in TEMPERATURES] + [f"{name} {setting}" for name in NAMES]
            label = f"samples, {described(setting)}, equal {DIVERSITY[model]}"
            scale = (1, -1) if model == "sotu-tiny" else (3, 1)
            rows.append(Question(model, label, gain(model, setting, True), seeds_of("generation", model, arms), *scale))
    return [row for row in rows if len(row.seeds) > 2]


def effects(rows: list[Question]) -> dict[tuple[str, str, str], Estimate]:
    """Return the effects by model, label and name."""
    return {(row.model, row.label, name): row.estimate(name) for row in rows for name in EFFECTS}


def effects_tables(rows: list[Question]) -> dict[str, list[str]]:
    """Return every effect, a table for each model."""
    texts, note = marked(list(effects(rows).values()), [row.digits for row in rows for _ in EFFECTS])
    rest, lines = iter(texts), dict[str, list[list[str]]]()
    for row in rows:
        label = f"{row.label} ({len(row.seeds)} seeds)"
        lines.setdefault(row.model, []).append([label, *islice(rest, len(EFFECTS))])
    found = {f"effects, {model}": table(["measure", *EFFECTS.values()], part) for model, part in lines.items()}
    found[f"effects, {SPHERE}"] += note
    return found


def hidden_table(model: str) -> list[str]:
    """Return what it costs to hide LERP's norm or turn at each position, by weight."""
    seeds = [seed for seed in seeds_of("certainty", model, [""]) if seed in seeds_of("bound", model, [""])]
    weights = (0.1, WEIGHT, 0.5)

    def cost(pair: tuple[str, str], weight: float, chosen: Sequence[int]) -> float:
        at = BOUND_WEIGHTS.index(weight)
        values = bound_change(model, at)(chosen) | bound_change(model, at, "certainty")(chosen) | {"none": 0.0}
        return values[pair[0]] - values[pair[1]]

    found = [jackknife(lambda s, p=p, w=w: cost(p, w, s), seeds) for p in HIDDEN.values() for w in weights]
    texts, note = marked(found, [MODELS[model]] * len(found))
    rest = iter(texts)
    rows = [[label, f"`{second}`", *islice(rest, len(weights))] for label, (_, second) in HIDDEN.items()]
    return [*table(["what each position gets", "compared with", *(f"{weight:g}" for weight in weights)], rows), *note]


def bound_table(model: str) -> list[str]:
    """Return the change of the bound by operator and weight, and the turn and norm at weight 0.3."""
    cells, seeds, digits = read_cells("factorial-bound"), seeds_of("bound", model, [""]), MODELS.get(model, 4)
    at_weight = BOUND_WEIGHTS.index(WEIGHT)
    rows = []
    for (mean, path, norm), name in OPERATORS.items():
        changes = [
            jackknife(lambda s, at=at, name=name: bound_change(model, at)(s)[name], seeds).text(digits)
            for at in range(len(BOUND_WEIGHTS))
        ]
        turn, ratio = (
            np.mean([cells[f"{model} {s}"][key][name][at_weight] for s in seeds]) for key in ("turn", "norm")
        )
        label = "mask's" if norm == "mask" else norm
        rows.append([mean, path, label, f"`{name}`", *changes, f"{turn:.1f}°", f"{ratio:.2f}"])
    weights = [f"{weight:g}" for weight in BOUND_WEIGHTS]
    return table(["mean", "path", "norm", "operator", *weights, "turn", "norm"], rows)


def samples_table(model: str) -> list[str]:
    """Return quality and diversity of plain samples and of two operators; the figure shows all eight."""
    cells = read_cells("factorial-generation")
    arms: list[tuple[str, float | str]] = [("none", temperature) for temperature in TEMPERATURES]
    arms += [(name, setting) for name in ("linear", "spherical") for setting in SAMPLE_SETTINGS]
    seeds = seeds_of("generation", model, [f" {name} {setting}" for name, setting in arms])
    is_words, key = model == "sotu-tiny", DIVERSITY[model]
    quality, digits = ("real words, %", 1) if is_words else ("NLL per residue", 3)
    columns = ["sampling", quality, "difference", f"at equal {key}", "entropy"]
    columns += [] if is_words else ["spread", "distinct", "nearest"]
    rows = []
    for name, setting in arms:
        here = [cells[f"{model} {seed} {name} {setting}"] for seed in seeds]
        entropy, value = pooled(model, f"{name} {setting}", seeds, "entropy")
        changes = ["", ""]
        if name != "none":
            statistics = [gain(model, setting, is_level) for is_level in (False, True)]
            changes = [jackknife(lambda s, name=name, f=f: f(s)[name], seeds).text(digits) for f in statistics]
        extra = []
        if not is_words:
            spread, nearest = (np.mean([v for cell in here for v in cell[key]]) for key in ("spread", "nearest"))
            total = sum(len(cell["nearest"]) for cell in here)
            extra = [f"{spread:.3f}", f"{sum(cell['distinct'] for cell in here)} of {total}", f"{nearest:.1f}"]
        label = f"plain, temperature {setting}" if name == "none" else f"`{name}`, {described(setting)}"
        rows.append([label, f"{value:.{digits}f}", *changes, f"{entropy:.3f}", *extra])
    return table(columns, rows)


def changed_bounds_table() -> list[str]:
    """Return by operator the change of the bound with fitted feedback, and after continued training."""
    columns = {}
    for model, digits in MODELS.items():
        for part, label in (("tuned", "fitted"), ("continued", "trained")):
            seeds, change = seeds_of(part, model, NAMES), changed_bound(part, model)
            if len(seeds) > 2:
                columns[f"`{model}`, {label}, {len(seeds)} seeds"] = [
                    jackknife(lambda s, name=name, f=change: f(s)[name], seeds).text(digits)
                    for name in OPERATORS.values()
                ]
    rows = [[f"`{name}`", *texts] for name, *texts in zip(OPERATORS.values(), *columns.values(), strict=True)]
    return table(["operator", *columns], rows)


def tables() -> dict[str, list[str]]:
    """Return every table by its title, as lines of markdown."""
    found = effects_tables(questions()) | {"fitted and trained": changed_bounds_table()}
    for model in MODELS:
        found[f"hidden, {model}"] = hidden_table(model)
        found[f"bound, {model}"] = bound_table(model)
        found[f"samples, {model}"] = samples_table(model)
    found[f"bound, {SPHERE}"] = bound_table(SPHERE)
    return found
