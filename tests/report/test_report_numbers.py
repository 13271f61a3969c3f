"""Every number in a report is the one that the run folder gives; each is computed here a second time, another way."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up import ARMS, BUDGETS, FROZEN, SEEDS, make_experiment
from scipy import stats

from arcmask.report.comparisons import comparisons, main_pairs, pairs
from arcmask.report.folder import read_run
from arcmask.report.method_tables import arm_table, hyperparameter_table, operator_table, overhead_table
from arcmask.report.paper import BY_SEED, MEANS, paper_arm
from arcmask.report.quantities import quantities
from arcmask.report.tables import difference_table, gain_table, interval_table, main_table, seed_table
from arcmask.report.training_tables import ablation_tables, likelihood_table, regime_table
from arcmask.report.wording import fixed, latex, plus_minus


def cell_values(folder: Path, score: str, arm: str, budget: int) -> np.ndarray:
    cells = [folder / arm / f"seed-{seed}" / f"steps-{budget}" / "scores.json" for seed in SEEDS]
    return np.array([json.loads(cell.read_text())["scores"][score]["value"] for cell in cells])


def change_score(cell: Path, score: str, **changes: object) -> None:
    content = json.loads((cell / "scores.json").read_text())
    content["scores"][score] |= changes
    (cell / "scores.json").write_text(json.dumps(content))


@pytest.fixture
def own(experiment_folder, tmp_path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(experiment_folder, tmp_path / "own")


@pytest.mark.parametrize("score", ["generative_perplexity", "entropy", "real_word_rate", "mauve"])
def test_the_points_of_a_score_figure_are_those_of_the_run_folder(page, experiment_folder, score):
    name = {"generative_perplexity": "generative-perplexity-smollm2-135m"}.get(score, score.replace("_", "-"))
    drawn = json.loads((page.parent / "figures" / f"{name}.json").read_text())
    assert set(drawn["arms"]) == set(ARMS)
    for arm in ARMS:
        for point, budget in zip(drawn["arms"][arm]["points"], BUDGETS, strict=True):
            values = cell_values(experiment_folder, score, arm, budget)
            low, high = stats.t.interval(0.95, len(SEEDS) - 1, values.mean(), stats.sem(values))
            assert point["budget"] == budget
            np.testing.assert_allclose([point["mean"], *point["interval"]], [values.mean(), low, high], rtol=1e-12)


def test_the_points_of_the_training_figure_are_block_means_of_the_metrics(page, experiment_folder):
    drawn = json.loads((page.parent / "figures" / "training-perplexity.json").read_text())
    block = drawn["block"]
    for arm in ARMS:
        curves = []
        for seed in SEEDS:
            lines = (experiment_folder / arm / f"seed-{seed}" / "train" / "metrics.jsonl").read_text().splitlines()
            nll = np.array([json.loads(line)["nll"] for line in lines])
            curves.append(np.exp(nll.reshape(-1, block).mean(1)))
            np.testing.assert_allclose(drawn["arms"][arm]["seeds"][str(seed)]["values"], curves[-1], rtol=1e-12)
        assert drawn["arms"][arm]["steps"] == list(range(block, len(nll) + 1, block))
        np.testing.assert_allclose(drawn["arms"][arm]["mean"], np.mean(curves, 0), rtol=1e-12)


def test_every_figure_has_its_data_beside_it(page):
    pictures = {path.stem for path in (page.parent / "figures").glob("*.png")}
    assert pictures == {path.stem for path in (page.parent / "figures").glob("*.json")}
    assert {"training-perplexity", "weight", "angle", "mauve", "entropy", "real-word-rate"} <= pictures


def test_differences_are_the_paired_t_test(page, experiment_folder):
    rows = json.loads((page.parent / "tables" / "differences.json").read_text())["rows"]
    assert {(row["first"], row["second"]) for row in rows} == {
        ("spherical", "linear"),
        ("linear", "none"),
        ("spherical", "none"),
    }
    for row in (row for row in rows if row["score"].startswith("Gen PPL")):
        for budget in BUDGETS:
            first, second = (
                cell_values(experiment_folder, "generative_perplexity", row[key], budget) for key in ("first", "second")
            )
            test = stats.ttest_rel(first, second)
            low, high = test.confidence_interval(0.95)
            cell = row[str(budget)]
            np.testing.assert_allclose(cell["p_value"], test.pvalue, rtol=1e-9)
            np.testing.assert_allclose(cell["mean"] - cell["half_width"], low, rtol=1e-9)
            np.testing.assert_allclose(cell["mean"] + cell["half_width"], high, rtol=1e-9)


def test_p_values_are_corrected_for_the_number_of_comparisons(experiment_folder):
    compared = comparisons(read_run(experiment_folder))
    p = np.array([c.difference.p_value for c in compared])
    m = len(p)
    # Holm by its definition: the largest, over all that are no greater, of (how many are not smaller) x p.
    places = np.argsort(np.argsort(p, kind="stable"), kind="stable")
    expected = [min(1.0, max((m - places[j]) * p[j] for j in range(m) if places[j] <= places[i])) for i in range(m)]
    np.testing.assert_allclose([c.adjusted for c in compared], expected, rtol=1e-12)


def test_a_difference_is_named_by_its_interval(experiment_folder):
    experiment = read_run(experiment_folder)
    compared = comparisons(experiment)
    by_words = {(c.pair.label, c.score, c.budget): c for c in compared}
    assert by_words["spherical \u2212 linear", "generative_perplexity", 16].reading == "better"
    for comparison in compared:
        low = comparison.difference.mean - comparison.difference.half_width
        high = comparison.difference.mean + comparison.difference.half_width
        assert (comparison.reading == "no difference seen") == (low <= 0 <= high)
        assert comparison.better is not None or comparison.reading not in ("better", "worse")


def test_a_base_that_is_an_arm_is_what_the_others_are_compared_with(tmp_path):
    experiment = read_run(make_experiment(tmp_path / "frozen", arms=FROZEN | ARMS, seeds=(1,), budgets=(16,)))
    against_base = [(name, "base") for name in experiment.arms if name != "base"]
    assert [(pair.first.name, pair.second.name) for pair in pairs(experiment)] == [
        *against_base,
        ("linear", "none"),
        ("spherical", "none"),
        ("spherical-tuned", "linear-tuned"),
        ("spherical", "linear"),
    ]
    left_out = [("none", "base"), ("linear", "base"), ("spherical", "base")]
    shown = [(pair.first.name, pair.second.name) for pair in main_pairs(experiment)]
    assert shown == [
        names for pair in pairs(experiment) if (names := (pair.first.name, pair.second.name)) not in left_out
    ]
    bounds = {(c.pair.first.name, c.score) for c in comparisons(experiment) if c.budget is None}
    assert ("spherical-tuned", "bound_two_pass") in bounds
    assert ("spherical-tuned", "bound_plain") not in bounds, "the backbone is the same"
    assert ("base-temperature-0.9", "bound_two_pass") not in bounds, "a bound has no temperature"


def test_the_forest_plot_shows_the_paired_differences_at_the_largest_budget(page, experiment_folder):
    rows = json.loads((page.parent / "figures" / "forest.json").read_text())["rows"]
    scores = dict.fromkeys(row["score"] for row in rows)
    assert list(scores) == ["bound_two_pass", "real_word_rate", "mauve", "generative_perplexity"]
    assert len(rows) == 3 * len(scores)
    for row in rows:
        if row["budget"] is not None:
            first, second = (cell_values(experiment_folder, row["score"], row[key], 64) for key in ("first", "second"))
            half_width = stats.t.ppf(0.975, len(SEEDS) - 1) * stats.sem(first - second)
            expected = (first - second).mean(), half_width
            np.testing.assert_allclose((row["mean"], row["half_width"]), expected, rtol=1e-9, atol=1e-12)


def test_one_seed_gives_no_difference_and_the_interval_of_its_samples(tmp_path):
    experiment = read_run(make_experiment(tmp_path / "one", seeds=(1,)))
    compared = comparisons(experiment)
    assert {c.reading for c in compared} == {"no interval"}
    table = main_table(experiment)
    score = experiment.scores["none", 1, 16]["generative_perplexity"]
    expected = f"[{score.interval[0]:.2f}, {score.interval[1]:.2f}]\u2021"
    assert table.rows[0].entries[1].under == expected
    assert "\u00b1" not in table.rows[0].entries[1].text


def test_scores_of_two_evaluators_never_share_a_column(own):
    for seed in SEEDS:
        for budget in BUDGETS:
            cell = own / "linear" / f"seed-{seed}" / f"steps-{budget}"
            change_score(cell, "generative_perplexity", evaluator="gpt2-large", evaluator_sha256="other")
    experiment = read_run(own)
    table = interval_table(experiment)
    columns = [i for i, head in enumerate(table.heads) if head.text.startswith("Gen PPL")]
    assert {table.heads[i].note for i in columns} == {"gpt2-large", "smollm2-135m"}
    for row in table.rows:
        filled = [table.heads[i].note for i in columns if row.entries[i].text != "\u2014"]
        assert filled == ["gpt2-large" if row.data["arm"] == "linear" else "smollm2-135m"]
    compared = {c.pair.label for c in comparisons(experiment) if c.score == "generative_perplexity"}
    assert compared == {"spherical \u2212 no feedback"}


def test_two_evaluators_of_one_name_are_told_apart_by_their_content(own):
    cell = own / "linear" / "seed-1" / "steps-16"
    change_score(cell, "generative_perplexity", evaluator_sha256="another-hash")
    notes = [q.note for q in quantities(read_run(own), ("generative_perplexity",))]
    assert notes == ["smollm2-135m, another-", "smollm2-135m, smollm2-"]
    change_score(cell, "generative_perplexity", evaluator_sha256="smollm2-135m-hash", context=64)
    notes = [q.note for q in quantities(read_run(own), ("generative_perplexity",))]
    assert notes == ["smollm2-135m, context 64", "smollm2-135m, context None"]


def test_the_papers_values_agree_with_its_own_runs():
    """The interval table follows from the 27 runs; so do all deviations in the main table, but for two."""
    wrong = []
    for (arm, steps, score), printed in MEANS.items():
        if printed.half_width is None:
            continue
        runs = np.array([BY_SEED[arm, seed, steps, score] for seed in SEEDS])
        digits = {"generative_perplexity": 2, "entropy": 4, "mauve": 5}[score]
        half = stats.t.ppf(0.975, 2) * runs.std(ddof=1) / math.sqrt(3)
        assert f"{runs.mean():.{digits}f}" == f"{printed.mean:.{digits}f}", (arm, steps, score)
        assert f"{half:.{digits}f}" == f"{printed.half_width:.{digits}f}", (arm, steps, score)
        shorter = min(digits, 4)
        if printed.std is not None and f"{runs.std(ddof=1):.{shorter}f}" != f"{printed.std:.{shorter}f}":
            wrong.append((arm, steps, score))
    assert wrong == [("none", 128, "generative_perplexity"), ("linear", 128, "mauve")]


def test_the_papers_values_stand_beside_ours_only_under_its_protocol(tmp_path, experiment_folder):
    paper = read_run(make_experiment(tmp_path / "paper", protocol="paper", budgets=(64, 128), length=1024))
    shown = [entry.paper for row in main_table(paper).rows for entry in row.entries if entry.paper]
    assert {"72.50 \u00b1 0.62", "0.0117 \u00b1 0.0008"} <= set(shown)
    assert "87.25 \u00b1 2.03" in [e.paper for row in interval_table(paper).rows for e in row.entries]
    assert "86.59" in [e.paper for row in seed_table(paper).rows for e in row.entries]
    assert "73.1" in [e.paper for row in regime_table(paper).rows for e in row.entries]
    ours = read_run(experiment_folder)
    tables = [main_table(ours), interval_table(ours), seed_table(ours), regime_table(ours)]
    assert not [entry for table in tables for row in table.rows for entry in row.entries if entry.paper]


def test_only_the_papers_own_arms_have_its_values():
    assert paper_arm({"operator": "spherical", "top_k": 3, "karcher_steps": 3, "fixed_weight": None}) == "spherical"
    assert paper_arm({"operator": "spherical", "top_k": 3, "karcher_steps": 3, "fixed_weight": 0.3}) is None
    assert paper_arm({"operator": "spherical", "top_k": 5, "karcher_steps": 3, "fixed_weight": None}) is None
    assert paper_arm({"operator": "renormalized", "top_k": 3, "karcher_steps": 3, "fixed_weight": None}) is None
    assert paper_arm({"operator": "none", "top_k": 1, "karcher_steps": 1, "fixed_weight": None}) == "none"


def test_an_ablation_is_read_at_its_step_with_the_papers_rows(tmp_path):
    arms = {f"karcher-{n}": (f"{n} steps", {"operator": "spherical", "karcher_steps": n}, 0.01 * n) for n in (5, 1, 3)}
    folder = make_experiment(tmp_path / "karcher", arms=arms, protocol="paper", read_at=40)
    (table,) = ablation_tables(read_run(folder))
    assert table.title == "Karcher steps at step 40"
    rows = [row for row in table.rows if row.entries]
    assert [row.entries[0].text for row in rows] == ["1", "3", "5"]
    assert [row.entries[1].paper for row in rows] == ["24.48", "24.58", "24.47"]
    for row in rows:
        by_seed = []
        for seed in SEEDS:
            lines = (folder / row.data["arm"] / f"seed-{seed}" / "train" / "metrics.jsonl").read_text().splitlines()
            by_seed.append(np.mean([json.loads(line)["nll"] for line in lines[30:40]]))
        np.testing.assert_allclose(row.data["nll"]["mean"], np.mean(by_seed), rtol=1e-12)


def test_the_bound_of_an_arm_without_feedback_is_its_plain_one(experiment_folder):
    rows = {row.data["arm"]: row.data for row in likelihood_table(read_run(experiment_folder)).rows}
    assert rows["none"]["two_pass/nats"] == rows["none"]["plain/nats"]
    expected = [1.70 + 0.001 * seed - 0.05 - 0.0002 * seed for seed in SEEDS]
    np.testing.assert_allclose(rows["spherical"]["two_pass/nats"]["mean"], np.mean(expected), rtol=1e-12)


def test_every_setting_in_which_arms_differ_is_shown(tmp_path):
    arms = ARMS | {"late": ("later centre", {"operator": "spherical", "centre": -1.5}, 0.02)}
    table = arm_table(read_run(make_experiment(tmp_path / "arms", arms=arms)))
    column = [head.text for head in table.heads].index("centre")
    shown = {row.data["arm"]: row.entries[column].text for row in table.rows}
    assert shown == {"none": "\u2014", "linear": "\u22124.0", "spherical": "\u22124.0", "late": "\u22121.5"}


def test_arms_stand_in_the_order_of_what_they_do(tmp_path):
    """The plan's file has sorted keys; weights are ordered as numbers, and the learned one comes last."""
    arms = {
        "spherical-learned": ("learned", {"operator": "spherical"}, 0.0),
        "a-linear": ("linear", {"operator": "linear"}, 0.0),
        "b-baseline": ("none", {"operator": "none"}, 0.0),
        "spherical-0.5": ("half", {"operator": "spherical", "fixed_weight": 0.5}, 0.0),
        "spherical-0.05": ("little", {"operator": "spherical", "fixed_weight": 0.05}, 0.0),
    }
    folder = make_experiment(tmp_path / "arms", arms=arms, seeds=(1,), budgets=(16,), baseline="b-baseline")
    expected = ["b-baseline", "a-linear", "spherical-0.05", "spherical-0.5", "spherical-learned"]
    assert list(read_run(folder).arms) == expected


def test_operators_from_outside_come_last_and_keep_their_settings(tmp_path):
    arms = {
        "b": ("second of ours", {"operator": "zz.py:second"}, 0.0),
        "a": ("first of ours", {"operator": "zz.py:first"}, 0.0),
        "x": ("linear", {"operator": "linear"}, 0.0),
        "y": ("none", {"operator": "none"}, 0.0),
    }
    experiment = read_run(make_experiment(tmp_path / "arms", arms=arms, seeds=(1,), budgets=(16,), baseline="x"))
    assert list(experiment.arms) == ["x", "y", "a", "b"]
    table = arm_table(experiment)
    columns = [[head.text for head in table.heads].index(name) for name in ("Operator", "Karcher steps")]
    shown = [[row.entries[i].text for i in columns] for row in table.rows]
    assert shown == [["linear", "\u2014"], ["none", "\u2014"], ["first", "3"], ["second", "3"]]


def test_tables_have_as_many_cells_in_every_row_and_form(experiment_folder):
    experiment = read_run(experiment_folder)
    for table in (
        main_table(experiment),
        seed_table(experiment),
        difference_table(experiment, comparisons(experiment)),
        gain_table(experiment, comparisons(experiment)),
        hyperparameter_table(experiment),
        operator_table(experiment),
        overhead_table(experiment),
    ):
        width = len(table.heads)
        lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {width + 1}
        body = table.latex().split(r"\midrule")[1].split(r"\bottomrule")[0]
        for row in re.findall(r"^(?!\\addlinespace|\\multicolumn)\S.*\\\\$", body, flags=re.MULTILINE):
            assert len(re.findall(r"(?<!\\)&", row)) == width - 1
        assert json.loads(table.json())["rows"] == json.loads(json.dumps([r.data for r in table.rows if not r.heading]))


def test_numbers_are_written_with_true_signs_and_no_false_zero():
    assert fixed(-1.234, 2) == "\u22121.23"
    assert fixed(-0.001, 2) == "0.00"
    assert fixed(0.5, 1, signed=True) == "+0.5"
    assert plus_minus(2.0, 0.0004, 3) == "2.000 \u00b1 <0.001"
    assert latex("50 % of a_b & 1 < 2") == r"50 \% of a\_b \& 1 $<$ 2"
