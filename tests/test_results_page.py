"""The page docs/results/README.md shows what its scripts compute from the committed measurements."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from arcmask.feedback import OPERATORS

RESULTS = Path(__file__).parents[1] / "docs/results"


@pytest.fixture
def scripts(monkeypatch):
    """Import a script of the folder by its name; the operators that scripts register are removed again."""
    monkeypatch.syspath_prepend(str(RESULTS))
    operators, modules = dict(OPERATORS), set(sys.modules)
    yield importlib.import_module
    OPERATORS.clear()
    OPERATORS.update(operators)
    for name in set(sys.modules) - modules:
        if str(RESULTS) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def test_the_page_has_every_table(scripts):
    page, text = scripts("page"), (RESULTS / "README.md").read_text()
    found = page.tables()
    assert all(f"<!-- table: {title} -->" in text for title in found)
    assert page.filled(text, found) == text


def test_quality_at_equal_diversity_is_the_distance_from_the_line_through_plain_samples(scripts):
    beyond_line = scripts("measured").beyond_line
    plain = [(0.5, 0.4), (0.4, 0.3), (0.3, 0.2)]
    assert beyond_line((0.45, 0.35), plain) == pytest.approx(0.0)
    assert beyond_line((0.45, 0.31), plain) == pytest.approx(-0.04)
    assert beyond_line((0.2, 0.05), plain) == pytest.approx(-0.05)


def test_the_lines_of_the_trained_models_are_ordered_alike_at_every_spread_that_the_page_names(scripts):
    antibody = scripts("antibody")
    pairs = [pair for pair in antibody.PAIRS if not set(pair).isdisjoint(antibody.TRAINED)]
    for arm, other in pairs:
        signs = set()
        for antibody.SPREAD in (0.30, 0.34, 0.38, 0.42):
            signs.add(antibody.at_spread(arm, antibody.seeds()) < antibody.at_spread(other, antibody.seeds()))
        assert len(signs) == 1, (arm, other)


def test_plain_samples_are_as_near_to_their_line_as_the_page_says(scripts):
    tables, beyond_line = scripts("factorial_tables"), scripts("measured").beyond_line
    for model, most in (("sotu-tiny", 2.4), ("antiberty", 0.017)):
        arms = [f"none {temperature}" for temperature in tables.TEMPERATURES]
        seeds = tables.seeds_of("generation", model, [f" {arm}" for arm in arms])
        points = [tables.pooled(model, arm, seeds, tables.DIVERSITY[model]) for arm in arms]
        assert max(abs(beyond_line(point, points)) for point in points) == pytest.approx(most, rel=0.03)


def test_half_of_the_gains_with_fitted_weights_are_uncertain_as_the_page_says(scripts):
    tables, jackknife = scripts("factorial_tables"), scripts("measured").jackknife
    gains = tables.gain("sotu-tiny", "tuned", True)
    found = [jackknife(lambda seeds, n=n: gains(seeds)[n], range(5)) for n in tables.OPERATORS.values()]
    assert sum(one.value < one.half_width for one in found) == len(found) / 2


def test_the_jackknife_of_a_mean_is_the_t_interval(scripts):
    values = [0.3, -0.1, 0.4, 0.2, 0.25]
    estimate = scripts("measured").jackknife(lambda seeds: float(np.mean([values[seed] for seed in seeds])), range(5))
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval(0.95)
    assert estimate.value == pytest.approx(np.mean(values))
    assert estimate.half_width == pytest.approx((high - low) / 2)
    assert estimate.p_value == pytest.approx(test.pvalue)


def test_an_effect_is_the_difference_of_four_operators_from_the_other_four(scripts):
    factorial_tables = scripts("factorial_tables")
    by_operator = {
        name: 1.0 * (mean == "Fréchet") + 10.0 * (path == "arc") + 100.0 * (norm == "mask")
        for (mean, path, norm), name in factorial_tables.OPERATORS.items()
    }
    effects = [factorial_tables.effect(name, by_operator) for name in factorial_tables.EFFECTS]
    assert effects == pytest.approx([1.0, 10.0, 100.0, 111.0])


def test_holms_correction_is_that_of_its_definition(scripts):
    assert scripts("measured").holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert scripts("measured").holm([0.6, 0.5]) == [1.0, 1.0]


def test_the_jackknife_of_a_curved_statistic_keeps_the_value_of_all_seeds(scripts):
    values = np.array([0.3, -0.1, 0.4, 0.2])
    estimate = scripts("measured").jackknife(lambda seeds: float(values[list(seeds)].mean() ** 2), range(4))
    left_out = [np.delete(values, seed).mean() ** 2 for seed in range(4)]
    error = np.sqrt(3 / 4 * np.square(np.array(left_out) - np.mean(left_out)).sum())
    assert estimate.value == pytest.approx(0.2**2)
    assert estimate.half_width == pytest.approx(stats.t.ppf(0.975, 3) * error)
    assert estimate.p_value == pytest.approx(2 * stats.t.sf(0.2**2 / error, 3))


def test_the_best_weight_of_a_seed_is_chosen_by_the_other_seeds(scripts, monkeypatch):
    factorial_tables = scripts("factorial_tables")
    by_seed = [[-1.0, -2.0, 0.0, 0, 0], [-3.0, 1.0, 0.0, 0, 0], [-1.0, -9.0, 0.0, 0, 0]]
    names = factorial_tables.OPERATORS.values()
    cells = {f"m {seed}": {"change": dict.fromkeys(names, row)} for seed, row in enumerate(by_seed)}
    monkeypatch.setattr(factorial_tables, "read_cells", lambda _: cells)
    # The others' means are (-2, -4), (-1, -5.5) and (-2, -0.5), so the second, second and first weight are taken.
    best = factorial_tables.bound_at_best("m")
    assert best([0, 1, 2])["linear"] == pytest.approx((-2.0 + 1.0 - 1.0) / 3)
    assert best([2])["spherical"] == pytest.approx(-1.0)


def test_a_gain_at_equal_diversity_is_of_all_samples_together(scripts, monkeypatch):
    factorial_tables = scripts("factorial_tables")
    cells = {}
    for seed in (0, 1):  # with the quality 40 + 100 * entropy for plain sampling, and 3 points more with feedback
        for name, setting, entropy in [("none", one, one / 10) for one in factorial_tables.TEMPERATURES]:
            cells[f"sotu-tiny {seed} {name} {setting}"] = {"quality": [[40 + 100 * entropy, 100]], "entropy": [entropy]}
        for name in factorial_tables.OPERATORS.values():
            cells[f"sotu-tiny {seed} {name} 0.3"] = {"quality": [[51.5, 100], [51.5, 100]], "entropy": [0.08, 0.09]}
    monkeypatch.setattr(factorial_tables, "read_cells", lambda _: cells)
    assert factorial_tables.gain("sotu-tiny", 0.3, True)([0, 1])["linear"] == pytest.approx(3.0)
    assert factorial_tables.gain("sotu-tiny", 0.3, False)([0, 1])["linear"] == pytest.approx(51.5 - 50.0)
