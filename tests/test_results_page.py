"""The page docs/results/README.md shows what its scripts compute from the committed measurements."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from arcmask.feedback import OPERATORS

RESULTS = Path(__file__).parents[1] / "docs/results"


@pytest.fixture
def factorial_tables(monkeypatch):
    """The module of that name; the operators that it registers are removed again."""
    monkeypatch.syspath_prepend(str(RESULTS))
    before = dict(OPERATORS)
    import factorial_tables

    yield factorial_tables
    OPERATORS.clear()
    OPERATORS.update(before)
    for name in ("antibody", "factorial_tables", "factorial", "ingredients"):
        sys.modules.pop(name, None)


def test_the_page_has_every_table(factorial_tables):
    page = (RESULTS / "README.md").read_text()
    found = factorial_tables.tables()
    assert all(f"<!-- table: {title} -->" in page for title, lines in found.items() if lines)
    assert factorial_tables.filled(page, found) == page


def test_the_jackknife_of_a_mean_is_the_t_interval(factorial_tables):
    values = [0.3, -0.1, 0.4, 0.2, 0.25]
    estimate = factorial_tables.jackknife(lambda seeds: float(np.mean([values[seed] for seed in seeds])), range(5))
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval(0.95)
    assert estimate.value == pytest.approx(np.mean(values))
    assert estimate.half_width == pytest.approx((high - low) / 2)
    assert estimate.p_value == pytest.approx(test.pvalue)


def test_an_effect_is_the_difference_of_four_operators_from_the_other_four(factorial_tables):
    by_operator = {
        name: 1.0 * (mean == "Fréchet") + 10.0 * (path == "arc") + 100.0 * (norm == "mask")
        for (mean, path, norm), name in factorial_tables.OPERATORS.items()
    }
    effects = [factorial_tables.effect(name, by_operator) for name in factorial_tables.EFFECTS]
    assert effects == pytest.approx([1.0, 10.0, 100.0, 111.0])


def test_holms_correction_is_that_of_its_definition(factorial_tables):
    assert factorial_tables.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert factorial_tables.holm([0.6, 0.5]) == [1.0, 1.0]


def test_the_jackknife_of_a_curved_statistic_keeps_the_value_of_all_seeds(factorial_tables):
    values = np.array([0.3, -0.1, 0.4, 0.2])
    estimate = factorial_tables.jackknife(lambda seeds: float(values[list(seeds)].mean() ** 2), range(4))
    left_out = [np.delete(values, seed).mean() ** 2 for seed in range(4)]
    error = np.sqrt(3 / 4 * np.square(np.array(left_out) - np.mean(left_out)).sum())
    assert estimate.value == pytest.approx(0.2**2)
    assert estimate.half_width == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert estimate.p_value == pytest.approx(2 * stats.t.sf(0.2**2 / error, 3))
