"""Compare arms seed by seed: paired differences, confidence intervals, p-values, and sentences about them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from arcmask.evaluation.statistics import PairedDifference, paired_difference, relative_change
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import COMPARED, PROPOSED
from arcmask.report.quantities import BOUNDS, MAIN, Direction, bounds, quantities, values
from arcmask.report.wording import count, fixed, p_value, plus_minus

Reading = Literal["better", "worse", "higher", "lower", "no difference seen", "no interval"]
LEVEL = 0.05


@dataclass(frozen=True)
class Pair:
    """Two arms that are compared, as first - second."""

    first: Arm
    second: Arm

    @property
    def label(self) -> str:
        """The difference of the labels."""
        return f"{self.first.label} \u2212 {self.second.label}"


class _Measure(NamedTuple):
    """What is compared: a score at a budget, or a held-out bound, which has no budget."""

    label: str
    score: str
    digits: int
    better: Direction | None
    budget: int | None


@dataclass(frozen=True)
class Comparison:
    """The paired difference of two arms in one measure."""

    pair: Pair
    label: str
    score: str
    digits: int
    better: Direction | None
    budget: int | None
    difference: PairedDifference
    change: float | None = None  # of generative perplexity, relative to the second arm
    adjusted: float | None = None  # the p-value after Holm's correction for all comparisons of the experiment

    @property
    def reading(self) -> Reading:
        """What the confidence interval says."""
        if self.difference.half_width is None:
            return "no interval"
        if abs(self.difference.mean) <= self.difference.half_width:
            return "no difference seen"
        direction: Direction = "lower" if self.difference.mean < 0 else "higher"
        if self.better is None:
            return direction
        return "better" if direction == self.better else "worse"

    @property
    def value(self) -> str:
        """The mean difference ± half the width of its interval."""
        return plus_minus(self.difference.mean, self.difference.half_width, self.digits, signed=True)

    @property
    def percentage(self) -> str:
        """The relative change in per cent; empty for measures that have none."""
        return "" if self.change is None else f"{fixed(100 * self.change, 1, signed=True)} %"

    @property
    def statement(self) -> str:
        """The measure, the difference, its p-value, the number of seeds and the reading; without the pair."""
        budget = "" if self.budget is None else f" at T = {self.budget}"
        parts = (self.value, self.percentage, p_value(self.difference.p_value), count(self.difference.n, "seed"))
        verdict: str = self.reading
        if self.difference.n < 2:
            verdict = "no conclusion, because one seed gives no confidence interval"
        elif self.reading in ("better", "worse"):
            verdict = f"{self.reading} ({'lower' if self.difference.mean < 0 else 'higher'})"
        return f"{self.label}{budget}: {', '.join(part for part in parts if part)}: {verdict}"


def pairs(experiment: Experiment) -> list[Pair]:
    """List the paper's operator against the one that it replaces, if nothing else differs, then baseline pairs."""
    arms = list(experiment.arms.values())
    direct = [
        Pair(first, second)
        for first in arms
        for second in arms
        if (first.operator, second.operator) == (PROPOSED, COMPARED)
        if _other_settings(first.train) == _other_settings(second.train)
    ]
    if experiment.baseline is None:
        return direct
    base = experiment.arms[experiment.baseline]
    return direct + [Pair(arm, base) for arm in arms if arm.name != base.name and Pair(arm, base) not in direct]


def _other_settings(train: Mapping[str, object]) -> dict[str, object]:
    """Return all settings but the operator and the Karcher steps, which the compared operator does not use."""
    return {key: value for key, value in train.items() if key not in ("operator", "karcher_steps")}


def comparisons(experiment: Experiment) -> list[Comparison]:
    """Compare every pair in all main scores and held-out bounds, with p-values corrected for their number."""
    by_arm = {arm: _measured(experiment, arm) for arm in experiment.arms}
    compared = []
    for pair in pairs(experiment):
        second = by_arm[pair.second.name]
        for measure, first_values in by_arm[pair.first.name].items():
            seeds = [seed for seed in first_values if seed in second[measure]]
            if seeds:
                columns = [first_values[seed] for seed in seeds], [second[measure][seed] for seed in seeds]
                is_ratio = measure.score == "generative_perplexity"
                change = relative_change(sum(columns[0]), sum(columns[1])) if is_ratio else None
                compared.append(Comparison(pair, *measure, paired_difference(*columns), change))
    return _with_holm(compared)


def _measured(experiment: Experiment, arm: str) -> dict[_Measure, dict[int, float]]:
    """Return all values of an arm by measure and seed."""
    measured = {}
    for quantity in quantities(experiment, MAIN):
        for budget in experiment.budgets:
            measure = _Measure(quantity.label, quantity.score, quantity.digits, quantity.kind.better, budget)
            scores = values(experiment, quantity, arm, budget)
            measured[measure] = {seed: score.value for seed, score in scores.items()}
    for way, name in BOUNDS.items():
        measure = _Measure(f"Held-out NLL, {name}", f"bound_{way}", 4, "lower", None)
        measured[measure] = bounds(experiment, arm, way)
    return measured


def _with_holm(compared: list[Comparison]) -> list[Comparison]:
    """Set the adjusted p-values by Holm's step-down correction."""
    tested = [(c.difference.p_value, index) for index, c in enumerate(compared) if c.difference.p_value is not None]
    corrected, tested = list(compared), sorted(tested)
    factors = np.arange(len(tested), 0, -1)
    adjusted = np.maximum.accumulate(factors * np.array([p for p, _ in tested])).clip(max=1)
    for p, (_, index) in zip(adjusted.tolist(), tested, strict=True):
        corrected[index] = replace(compared[index], adjusted=p)
    return corrected


def multiplicity_note(compared: list[Comparison]) -> str:
    """Say how many comparisons were made, and how many differences are significant."""
    tested = [c for c in compared if c.adjusted is not None]
    if not tested:
        return "No comparison has two or more seeds, so there are no confidence intervals and no conclusions."
    significant = sum(c.reading != "no difference seen" for c in tested)
    kept = sum(c.adjusted is not None and c.adjusted < LEVEL for c in tested)
    return (
        f"The report makes {count(len(tested), 'comparison')}. By chance alone, about {len(tested) * LEVEL:.1f} of the "
        f"95 % confidence intervals would exclude zero. {significant} of {len(tested)} exclude it, and {kept} of "
        f"{len(tested)} differences are significant at the 5 % level after Holm\u2019s correction."
    )


def tally(compared: list[Comparison], pair: Pair) -> str:
    """Count the readings of a pair's comparisons in one sentence."""
    readings = [comparison.reading for comparison in compared if comparison.pair == pair]
    parts = [f"{readings.count(reading)} {reading}" for reading in get_args(Reading) if reading in readings]
    return f"{pair.label}, {count(len(readings), 'comparison')}: {', '.join(parts)}."
