"""Arms against each other, paired by seed: differences, intervals, p-values, and the sentences that follow."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from arcmask.evaluation.statistics import PairedDifference, paired_difference
from arcmask.report.folder import Arm, Experiment
from arcmask.report.quantities import BOUNDS, MAIN, bounds, quantities, values
from arcmask.report.wording import count, p_value, plus_minus

Reading = Literal["better", "worse", "higher", "lower", "no difference seen", "no interval"]
LEVEL = 0.05


@dataclass(frozen=True)
class Pair:
    """Two arms whose difference is asked for, first - second."""

    first: Arm
    second: Arm

    @property
    def label(self) -> str:
        """As a difference."""
        return f"{self.first.label} \u2212 {self.second.label}"


@dataclass(frozen=True)
class Comparison:
    """The difference of a pair in one quantity at one budget."""

    pair: Pair
    label: str
    score: str
    digits: int
    better: Literal["lower", "higher"] | None
    budget: int | None  # None for what does not depend on it
    difference: PairedDifference
    adjusted: float | None = None  # the p-value after Holm\u2019s correction for all comparisons of the experiment

    @property
    def reading(self) -> Reading:
        """What the interval says; nothing where there is none."""
        if self.difference.half_width is None:
            return "no interval"
        if abs(self.difference.mean) <= self.difference.half_width:
            return "no difference seen"
        way: Literal["lower", "higher"] = "lower" if self.difference.mean < 0 else "higher"
        if self.better is None:
            return way
        return "better" if way == self.better else "worse"

    @property
    def value(self) -> str:
        """mean ± half width."""
        return plus_minus(self.difference.mean, self.difference.half_width, self.digits, signed=True)

    @property
    def statement(self) -> str:
        """What was compared, value, p-value, seeds, reading; the pair is known from before."""
        found = self.difference
        what = [self.value, p_value(found.p_value), count(found.n, "seed")]
        if found.n < 2:
            verdict = "one seed gives no interval, so that nothing is concluded"
        elif self.reading in ("better", "worse"):
            verdict = f"{self.reading} ({'lower' if found.mean < 0 else 'higher'})"
        else:
            verdict = self.reading
        where = "" if self.budget is None else f" at T = {self.budget}"
        return f"{self.label}{where}: {', '.join(part for part in what if part)}: {verdict}"


def pairs(experiment: Experiment) -> list[Pair]:
    """Spherical against linear where nothing else differs, then every arm against the baseline."""
    arms = list(experiment.arms.values())
    found = [
        Pair(first, second)
        for first in arms
        for second in arms
        if first.train.get("operator") == "spherical" and second.train.get("operator") == "linear"
        if _but_for_the_operator(first.train) == _but_for_the_operator(second.train)
    ]
    if experiment.baseline is None:
        return found
    base = experiment.arms[experiment.baseline]
    return found + [Pair(arm, base) for arm in arms if arm.name != base.name and Pair(arm, base) not in found]


def _but_for_the_operator(train: Mapping[str, object]) -> dict[str, object]:
    # The linear operator takes no Karcher steps, whatever their setting says.
    return {key: value for key, value in train.items() if key not in ("operator", "karcher_steps")}


def comparisons(experiment: Experiment) -> list[Comparison]:
    """All differences of the main scores and the held-out bounds; the p-values corrected for their number."""
    found = []
    for pair in pairs(experiment):
        for quantity in quantities(experiment, MAIN):
            for budget in experiment.budgets:
                first, second = (values(experiment, quantity, arm.name, budget) for arm in (pair.first, pair.second))
                shared = [seed for seed in first if seed in second]
                if shared:
                    kind = quantity.kind
                    difference = paired_difference([first[s].value for s in shared], [second[s].value for s in shared])
                    found.append(
                        Comparison(
                            pair, quantity.label, quantity.score, quantity.digits, kind.better, budget, difference
                        )
                    )
        found += _bound_comparisons(experiment, pair)
    return _holm(found)


def _bound_comparisons(experiment: Experiment, pair: Pair) -> list[Comparison]:
    found = []
    for way, (short, _) in BOUNDS.items():
        first, second = (bounds(experiment, arm.name, way) for arm in (pair.first, pair.second))
        shared = [seed for seed in first if seed in second]
        if shared:
            difference = paired_difference([first[seed] for seed in shared], [second[seed] for seed in shared])
            found.append(Comparison(pair, f"Held-out NLL, {short}", f"bound_{way}", 4, "lower", None, difference))
    return found


def _holm(found: list[Comparison]) -> list[Comparison]:
    """Holm's step-down correction: the smallest p times m, the next times m - 1, and so on, never falling."""
    tested = sorted((i for i, c in enumerate(found) if c.difference.p_value is not None), key=lambda i: _p(found[i]))
    corrected, highest = list(found), 0.0
    for place, index in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - place) * _p(found[index])))
        corrected[index] = replace(found[index], adjusted=highest)
    return corrected


def _p(comparison: Comparison) -> float:
    assert comparison.difference.p_value is not None
    return comparison.difference.p_value


def about_the_number(found: list[Comparison]) -> str:
    """How many comparisons there are, and what that means for each."""
    tested = [c for c in found if c.adjusted is not None]
    if not tested:
        return "No comparison has two seeds or more, so that no difference has an interval, and none is concluded."
    alone = sum(c.reading != "no difference seen" for c in tested)
    kept = sum(c.adjusted is not None and c.adjusted < LEVEL for c in tested)
    return (
        f"{count(len(tested), 'comparison')} {'was' if len(tested) == 1 else 'were'} made; by chance alone, about "
        f"{len(tested) * LEVEL:.1f} intervals of 95 % would leave zero out. {alone} of {len(tested)} do, and {kept} "
        f"{'is' if kept == 1 else 'are'} below 5 % after Holm\u2019s correction for this number."
    )


def tally(found: list[Comparison], pair: Pair) -> str:
    """One sentence on a pair: how its comparisons came out."""
    mine = [comparison for comparison in found if comparison.pair == pair]
    numbers = {reading: sum(c.reading == reading for c in mine) for reading in Reading.__args__}  # type: ignore[attr-defined]
    parts = [f"{number} {reading}" for reading, number in numbers.items() if number]
    return f"{pair.label}: of {count(len(mine), 'comparison')}, {', '.join(parts)}."
