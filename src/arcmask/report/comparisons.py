"""Compare arms seed by seed: paired differences, confidence intervals and p-values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from arcmask.evaluation.statistics import PairedChange, PairedDifference, paired_change, paired_difference
from arcmask.report.folder import Arm, Experiment
from arcmask.report.paper import COMPARED, PROPOSED
from arcmask.report.quantities import AS_USED, BOUNDS, HEADLINES, MAIN, Direction, bounds, quantities, values
from arcmask.report.wording import count, plus_minus

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
    change: PairedChange | None = None  # of a score, relative to the second arm
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
    def gain(self) -> PairedChange | None:
        """The change as a gain: positive where the first arm is better. None for measures without a better side."""
        if self.change is None or self.better != "lower":
            return self.change
        interval = self.change.interval
        return replace(
            self.change, value=-self.change.value, interval=None if interval is None else (-interval[1], -interval[0])
        )


def pairs(experiment: Experiment) -> list[Pair]:
    """List the pairs of arms that are compared.

    If the base as it is is an arm: every other arm against it, and every trained arm with feedback against the trained
    arm without. Otherwise every arm against the baseline. In both cases also the paper's operator against the one that
    it replaces, where nothing else differs.
    """
    arms = list(experiment.arms.values())
    direct = [
        Pair(first, second)
        for first in arms
        for second in arms
        if (first.operator, second.operator) == (PROPOSED, COMPARED)
        if _other_settings(first) == _other_settings(second)
    ]
    bases = [arm for arm in arms if arm.kind == "base" and arm.temperature == 1.0]
    if bases:
        against_base = [Pair(arm, bases[0]) for arm in arms if arm.name != bases[0].name]
        return against_base + [Pair(a, b) for a in arms for b in arms if is_gain_of_training(Pair(a, b))] + direct
    if experiment.baseline is None:
        return direct
    baseline = experiment.arms[experiment.baseline]
    others = [Pair(arm, baseline) for arm in arms if arm.name != baseline.name]
    return direct + [pair for pair in others if pair not in direct]


def _other_settings(arm: Arm) -> dict[str, object]:
    """Return all settings but the operator and the Karcher steps, which the compared operator does not use."""
    settings = {"kind": arm.kind, "temperature": arm.temperature, **arm.train, **(arm.tune or {})}
    return {key: value for key, value in settings.items() if key not in ("operator", "karcher_steps")}


def is_gain_of_training(pair: Pair) -> bool:
    """Whether the pair is a training with feedback against one without."""
    first, second = pair.first, pair.second
    are_alike = first.kind == second.kind == "trained" and first.temperature == second.temperature
    return are_alike and first.has_feedback and not second.has_feedback


def main_pairs(experiment: Experiment) -> list[Pair]:
    """List the pairs of the headlines: arms that differ in feedback or in sampling alone.

    A trained arm with feedback belongs beside the trained arm without. If the plan has both, the trained arms against
    the base are left to the tables: these differences mix the effect of training with that of feedback.
    """
    compared = pairs(experiment)
    if not any(is_gain_of_training(pair) for pair in compared):
        return compared
    return [pair for pair in compared if not (pair.first.kind == "trained" and pair.second.kind == "base")]


def cost_of_training(experiment: Experiment) -> list[Pair]:
    """List the trained arms without feedback against the base, where the headlines leave them out."""
    left_out = [pair for pair in pairs(experiment) if pair not in main_pairs(experiment)]
    return [pair for pair in left_out if not pair.first.has_feedback]


def by_second(shown: Iterable[Pair]) -> list[tuple[Arm, list[Pair]]]:
    """Group pairs that follow each other by the arm that they share."""
    return [(second, list(group)) for second, group in groupby(shown, key=lambda pair: pair.second)]


def comparisons(experiment: Experiment) -> list[Comparison]:
    """Compare every pair in all main scores and held-out bounds, with p-values corrected for their number."""
    by_arm = {arm: _measured(experiment, arm) for arm in experiment.arms}
    compared = []
    for pair in pairs(experiment):
        second = by_arm[pair.second.name]
        for measure, first_values in by_arm[pair.first.name].items():
            seeds = [seed for seed in first_values if seed in second[measure]]
            if seeds and not _is_shared(pair, measure):
                columns = [first_values[seed] for seed in seeds], [second[measure][seed] for seed in seeds]
                has_change = measure.better is not None and measure.budget is not None and sum(columns[1]) > 0
                change = paired_change(*columns) if has_change else None
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


def _is_shared(pair: Pair, measure: _Measure) -> bool:
    """Whether both arms have the same bound by definition: that of one frozen backbone, without feedback."""
    kinds = {pair.first.kind, pair.second.kind}
    return measure.budget is None and (kinds == {"base"} or (measure.score != AS_USED and "trained" not in kinds))


def _with_holm(compared: list[Comparison]) -> list[Comparison]:
    """Set the adjusted p-values by Holm's step-down correction."""
    tested = [(c.difference.p_value, index) for index, c in enumerate(compared) if c.difference.p_value is not None]
    corrected, tested = list(compared), sorted(tested)
    factors = np.arange(len(tested), 0, -1)
    adjusted = np.maximum.accumulate(factors * np.array([p for p, _ in tested])).clip(max=1)
    for p, (_, index) in zip(adjusted.tolist(), tested, strict=True):
        corrected[index] = replace(compared[index], adjusted=p)
    return corrected


def headlines(experiment: Experiment, compared: list[Comparison]) -> dict[str, list[Comparison]]:
    """Return by label the comparisons of the main pairs at the largest budget."""
    shown = at_largest_budget(experiment, compared, main_pairs(experiment))
    return {label: [c for c in shown if c.label == label] for label in dict.fromkeys(c.label for c in shown)}


def at_largest_budget(experiment: Experiment, compared: list[Comparison], shown: list[Pair]) -> list[Comparison]:
    """Return the comparisons of these pairs at the largest budget, in those HEADLINES that have a better side."""
    budgets, scores = (None, *experiment.budgets[-1:]), list(HEADLINES)
    rows = [c for c in compared if c.pair in shown and c.score in scores and c.better and c.budget in budgets]
    return sorted(rows, key=lambda c: scores.index(c.score))


def multiplicity_note(compared: list[Comparison]) -> str:
    """Say how many comparisons were made, and how many differences are significant."""
    tested = [c for c in compared if c.adjusted is not None]
    if not tested:
        return "No comparison has two or more seeds, so there are no confidence intervals and no conclusions."
    significant = sum(c.reading != "no difference seen" for c in tested)
    kept = sum(c.adjusted is not None and c.adjusted < LEVEL for c in tested)
    return (
        f"The report makes {count(len(tested), 'comparison')}. By chance, about {len(tested) * LEVEL:.1f} of their "
        f"95 % intervals would exclude zero; {significant} do{'es' if significant == 1 else ''}, and "
        f"{count(kept, 'difference')} remain{'s' if kept == 1 else ''} significant at the 5 % level after "
        "Holm\u2019s correction."
    )
