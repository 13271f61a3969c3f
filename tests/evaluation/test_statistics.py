"""Statistics: the paper's tables from the paper's runs, the places where it disagrees with itself, and hard cases."""

import itertools
import math
import random
import subprocess
import sys
from inspect import signature

import pytest
from paper import INTERVALS, MAIN, ROWS, SINGLE
from scipy import stats

from arcmask.errors import ArcmaskError
from arcmask.evaluation import (
    bootstrap_interval,
    paired_change,
    paired_difference,
    relative_change,
    statistics,
    summarize,
)
from arcmask.evaluation.statistics import bootstrap_ratio

PERPLEXITY, MAUVE = 0, 2


def runs(arm: str, steps: int, column: int) -> list[float]:
    return [ROWS[arm, seed, steps][column] for seed in (1, 2, 3)]


def printed(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


def gain(arm: str, steps: int, column: int) -> float:
    """How much better spherical is than the arm, in per cent: a lower perplexity, a higher MAUVE."""
    if steps == 512:
        single = 0 if column == PERPLEXITY else 1
        change = relative_change(SINGLE["spherical"][single], SINGLE[arm][single])
    else:
        change = relative_change(
            summarize(runs("spherical", steps, column)).mean, summarize(runs(arm, steps, column)).mean
        )
    return round(100 * (-change if column == PERPLEXITY else change), 1)


@pytest.mark.parametrize("cell", INTERVALS)
def test_the_papers_runs_give_its_interval_table_to_every_printed_digit(cell):
    for column, (mean, half_width) in enumerate(INTERVALS[cell]):
        found = summarize(runs(*cell, column))
        assert found.n == 3
        assert (printed(found.mean, mean), printed(found.half_width, half_width)) == (mean, half_width)


def test_the_papers_runs_give_its_improvements_over_the_baseline():
    budgets = (64, 128, 256)
    assert [gain("mdlm", steps, PERPLEXITY) for steps in budgets] == [16.9, 18.3, 18.8]
    assert [gain("mdlm", steps, MAUVE) for steps in budgets] == [36.2, 62.7, 101.6]
    assert (gain("mdlm", 512, PERPLEXITY), gain("mdlm", 512, MAUVE)) == (19.6, 107.0)
    assert [gain("linear", steps, PERPLEXITY) for steps in (*budgets, 512)] == [12.2, 13.5, 14.0, 14.2]


def test_where_the_paper_disagrees_with_its_own_runs():
    """Two standard deviations of the main table, and three of the gains in its prose; nothing else."""
    wrong = {}
    for cell, columns in MAIN.items():
        for name, column, (mean, std) in zip(("perplexity", "mauve"), (PERPLEXITY, MAUVE), columns, strict=True):
            found = summarize(runs(*cell, column))
            if (printed(found.mean, mean), printed(found.std, std)) != (mean, std):
                wrong[(*cell, name)] = (f"{mean} +- {std}", f"{printed(found.mean, mean)} +- {printed(found.std, std)}")
    assert wrong == {
        ("mdlm", 128, "perplexity"): ("73.15 +- 0.41", "73.15 +- 0.40"),
        ("linear", 128, "mauve"): ("0.0148 +- 0.0001", "0.0148 +- 0.0004"),
    }
    # The least gain in MAUVE over the linear arm: 27.5 % in the abstract, 27.7 % in the text.
    assert min(gain("linear", steps, MAUVE) for steps in (64, 128, 256, 512)) == 27.6
    assert gain("linear", 512, MAUVE) == 56.1
    # Over the baseline: 36.0 % in the text. That, and 27.7, is what the rounded means of the main table give.
    assert gain("mdlm", 64, MAUVE) == 36.2
    rounded = {cell: float(columns[1][0]) for cell, columns in MAIN.items()}
    assert round(100 * relative_change(rounded["spherical", 64], rounded["mdlm", 64]), 1) == 36.0
    assert round(100 * relative_change(rounded["spherical", 128], rounded["linear", 128]), 1) == 27.7


@pytest.mark.parametrize("steps", [64, 128, 256])
def test_the_papers_intervals_of_perplexity_do_not_overlap(steps):
    low_to_high = [summarize(runs(arm, steps, PERPLEXITY)) for arm in ("spherical", "linear", "mdlm")]
    for lower, higher in itertools.pairwise(low_to_high):
        assert lower.mean + lower.half_width < higher.mean - higher.half_width


def test_a_paired_difference_is_scipys_paired_test():
    first, second = runs("spherical", 256, MAUVE), runs("linear", 256, MAUVE)
    found, expected = paired_difference(first, second), stats.ttest_rel(first, second)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-12)
    assert found.mean - found.half_width == pytest.approx(interval.low, rel=1e-12)
    assert found.mean + found.half_width == pytest.approx(interval.high, rel=1e-12)
    assert found.n == 3


@pytest.mark.parametrize("arm", ["mdlm", "linear"])
@pytest.mark.parametrize("column", [PERPLEXITY, MAUVE])
def test_a_paired_change_is_what_a_paired_test_does_not_reject(arm, column):
    for steps in (64, 128, 256):
        first, second = runs("spherical", steps, column), runs(arm, steps, column)
        found = paired_change(first, second)
        assert found.value == pytest.approx(summarize(first).mean / summarize(second).mean - 1, rel=1e-12)
        assert found.n == 3
        assert found.interval[0] < found.value < found.interval[1]
        for end in found.interval:
            scaled = [(1 + end) * value for value in second]
            assert stats.ttest_rel(first, scaled).pvalue == pytest.approx(0.05, rel=1e-6)
        excludes_zero = found.interval[0] > 0 or found.interval[1] < 0
        assert excludes_zero == (paired_difference(first, second).p_value < 0.05)


def test_a_change_has_no_interval_if_its_base_may_be_zero_and_a_point_if_all_seeds_agree():
    assert paired_change([1.0, 2.0, 3.0], [0.1, 0.9, 0.2]).interval is None
    assert paired_change([3.0], [2.0]) == statistics.PairedChange(0.5, None, 1)
    assert paired_change([4.0, 4.4, 4.2], [2.0, 2.2, 2.1]).interval == pytest.approx((1.0, 1.0))


def test_fewer_than_two_values_give_no_interval_rather_than_a_zero():
    one = summarize([3.5])
    assert (one.mean, one.std, one.half_width, one.n) == (3.5, None, None, 1)
    pair = paired_difference([3.5], [1.0])
    assert (pair.mean, pair.std, pair.half_width, pair.p_value, pair.n) == (2.5, None, None, None, 1)
    assert bootstrap_interval([3.5]) is None
    assert bootstrap_interval([]) is None


def test_differences_without_spread_have_the_limiting_p_value():
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).p_value == 0.0
    assert paired_difference([2.0, 3.0], [2.0, 3.0]).p_value == 1.0


def test_bad_values_are_refused():
    for call in (
        lambda: summarize([]),
        lambda: summarize([1.0, math.nan]),
        lambda: paired_difference([1.0, 2.0], [1.0]),
        lambda: bootstrap_interval([1.0, math.inf]),
        lambda: relative_change(1.0, 0.0),
        lambda: paired_change([1.0, 2.0], [1.0, -1.0]),
        lambda: paired_change([1.0, 2.0], [1.0]),
    ):
        with pytest.raises(ArcmaskError):
            call()


def test_the_bootstrap_agrees_with_scipys_and_depends_on_its_seed_alone():
    draw = random.Random(0)
    values = [draw.expovariate(1.0) for _ in range(80)]
    low, high = bootstrap_interval(values, seed=1, repeats=20_000)
    options = {"n_resamples": 20_000, "method": "percentile"}
    seed = {"rng" if "rng" in signature(stats.bootstrap).parameters else "random_state": 5}  # by scipy's version
    expected = stats.bootstrap((values,), lambda x, axis: x.mean(axis), **options, **seed).confidence_interval
    assert low == pytest.approx(expected.low, rel=0.02)
    assert high == pytest.approx(expected.high, rel=0.02)
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)


def test_the_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    draw = random.Random(1)
    covered = 0
    for trial in range(300):
        low, high = bootstrap_interval([draw.gauss(5, 2) for _ in range(60)], seed=trial, repeats=400)
        covered += low <= 5 <= high
    # 95 % would be 285; percentile intervals of 60 values cover a little less often.
    assert 270 <= covered <= 297


def test_a_ratio_is_drawn_by_samples_and_draws_that_say_nothing_are_left_out():
    nats, tokens = [2.0, 8.0, 0.0, 3.0], [1.0, 4.0, 0.0, 2.0]
    low, high = bootstrap_ratio(nats, tokens)
    assert 1.5 <= low < 13 / 7 < high <= 2.0
    assert bootstrap_ratio([0.0, 0.0], [0.0, 0.0]) is None


def test_statistics_need_no_torch():
    code = "import runpy, sys; module = runpy.run_path(sys.argv[1]); module['summarize']([1.0, 2.0]); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, statistics.__file__], check=True)
