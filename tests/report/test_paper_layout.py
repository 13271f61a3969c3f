"""Test the report of the paper's recipes: all its tables and figures are there, with the paper's own runs as scores."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from made_up import SEEDS, STEPS, make_experiment, make_paper
from paper import ROWS, SINGLE
from scipy import optimize, stats

from arcmask.diagnostics.cost import paper_costs
from arcmask.report.chapters import experiment_chapter
from arcmask.report.comparisons import comparisons
from arcmask.report.folder import read_run
from arcmask.report.loop import loop_figure
from arcmask.report.method_tables import hyperparameter_table, operator_table, overhead_table
from arcmask.report.tables import gain_table, main_table
from arcmask.report.training_tables import regime_table
from arcmask.report.wording import latex

RECIPES = ("paper", "paper-regimes", "paper-karcher", "paper-topk")
DOCS = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("paper")
    return {recipe: make_paper(home / recipe, recipe) for recipe in RECIPES}


@pytest.fixture(scope="module")
def chapters(runs):
    return {recipe: experiment_chapter(read_run(folder), recipe) for recipe, folder in runs.items()}


def words_of(chapter) -> str:
    return " ".join(block.text for section in chapter.sections for block in section.blocks)


def test_every_table_and_figure_of_the_paper_is_where_the_documentation_says(chapters):
    section = DOCS.read_text().partition("## The paper's tables and figures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*? \| `(tables|figures)/([\w-]+)` \| `([\w-]+)` \|", section, flags=re.MULTILINE)
    assert len(rows) == 16
    assert {recipe for *_, recipe in rows} <= set(RECIPES)
    for kind, name, recipe in rows:
        chapter = chapters[recipe]
        present = chapter.tables() if kind == "tables" else chapter.figures()
        assert name in [item.name for item in present], (kind, name, recipe)


def test_a_table_that_a_recipe_does_not_fill_is_explained(chapters, tmp_path):
    for recipe in RECIPES[1:]:
        assert "The plan has no budgets, so there are no samples to score." in words_of(chapters[recipe])
        assert "main" not in [table.name for table in chapters[recipe].tables()]
        assert "There are no samples yet." not in words_of(chapters[recipe])
    bare = read_run(make_experiment(tmp_path / "bare", mauve=False, seeds=(1,), budgets=(16,)))
    assert main_table(bare).notes[-1] == "There is no MAUVE, because the plan names no model for its features."
    assert overhead_table(bare).notes == [
        "The cost of the operators is missing, because the base model was not inspected."
    ]


def test_the_papers_runs_give_the_gains_of_its_abstract_with_intervals(runs):
    experiment = read_run(runs["paper"])
    table = gain_table(experiment, comparisons(experiment))
    by_row = {(row.data["first"], row.data["second"], row.data["score"]): row for row in table.rows if row.entries}
    arms = {"none": "mdlm", "linear-learned": "linear", "spherical-learned": "spherical"}
    for (first, second, score), row in by_row.items():
        column = {"Gen PPL (gpt2-large)": 0, "MAUVE": 2}.get(score)
        if column is None:
            continue
        sign = -1 if column == 0 else 1
        for steps in (64, 128, 256):
            x, y = (np.array([ROWS[arms[arm], seed, steps][column] for seed in SEEDS]) for arm in (first, second))
            cell = row.data[str(steps)]
            np.testing.assert_allclose(cell["value"], sign * (x.mean() / y.mean() - 1), rtol=1e-12)
            for end in cell["interval"]:  # where a paired t-test begins to reject
                assert stats.ttest_rel(x, (1 + sign * end) * y).pvalue == pytest.approx(0.05, rel=1e-6)
    spherical = by_row["spherical-learned", "none", "MAUVE"].entries
    assert [entry.paper for entry in spherical[1:]] == ["36.0 %", "62.9 %", "101.1 %", "107.0 %", "36.0 to 107.0 %"]
    assert [entry.text for entry in spherical[1:]] == ["36.2 %", "62.7 %", "101.6 %", "107.0 %", "36.2 to 107.0 %"]
    linear = by_row["spherical-learned", "linear-learned", "MAUVE"].entries
    assert linear[-1].paper == "27.7 to 56.1 %"
    perplexity = by_row["spherical-learned", "none", "Gen PPL (gpt2-large)"].entries
    assert (perplexity[-1].text, perplexity[-1].paper) == ("16.9 to 19.6 %", "16.9 to 19.6 %")
    singles = SINGLE["spherical"][0], SINGLE["linear"][0]
    expected = f"{100 * (1 - singles[0] / singles[1]):.1f} %"
    assert by_row["spherical-learned", "linear-learned", "Gen PPL (gpt2-large)"].entries[-2].paper == expected


def test_gains_have_the_papers_values_only_under_its_protocol(experiment_folder):
    experiment = read_run(experiment_folder)
    table = gain_table(experiment, comparisons(experiment))
    assert not [entry for row in table.rows for entry in row.entries if entry.paper]
    assert table.folded


def test_hyperparameters_are_those_of_the_runs_beside_the_papers(runs, tmp_path):
    rows = {row.data["setting"]: row for row in hyperparameter_table(read_run(runs["paper"])).rows if row.entries}
    differing = [name for name, row in rows.items() if row.entries[2].under]
    assert differing == ["steps", "samples"]  # the folder is smaller than the paper's
    names = ("top_k", "karcher_steps", "scale", "centre", "gate_probability", "band", "learning_rate")
    ours, paper = ([rows[name].entries[i].text for name in names] for i in (2, 3))
    assert ours == paper == ["3", "3", "0.5", "\u22124.0", "0.5", "0.2, 0.8", "3e-05"]
    assert (rows["steepness"].entries[2].text, rows["steepness"].entries[3].text) == ("6.667", "6.67")
    assert rows["batch_size"].entries[2].text == "512"
    assert rows["operator"].data["values"] == ["linear", "spherical"]
    ablated = hyperparameter_table(read_run(runs["paper-karcher"]))
    assert next(row for row in ablated.rows if row.data.get("setting") == "karcher_steps").data["values"] == [1, 3, 5]
    # A centre that the plan leaves to be computed is a number in the run.
    arms = {"spherical": ("spherical", {"operator": "spherical", "centre": "auto"}, 0.0)}
    folder = make_experiment(tmp_path / "auto", arms=arms, seeds=(1,), budgets=())
    config = folder / "spherical" / "seed-1" / "train" / "config.yaml"
    config.write_text(config.read_text().replace("centre: auto", "centre: -2.5"))
    rows = {row.data["setting"]: row for row in hyperparameter_table(read_run(folder)).rows if row.entries}
    assert (rows["centre"].entries[2].text, rows["centre"].entries[2].under) == ("\u22122.5", "differs")


def test_the_comparison_of_operators_has_the_papers_rows(runs):
    table = operator_table(read_run(runs["paper"]))
    assert [head.text for head in table.heads] == ["", "linear (LERP)", "spherical (SLERP)"]
    rows = {row.data["row"]: row.entries for row in table.rows}
    assert [entry.paper for entry in rows["domain"][1:]] == ["probability simplex", "unit hypersphere"]
    assert [entry.text for entry in rows["mean"][1:]] == ["weighted Euclidean mean", "Fr\u00e9chet mean"]
    assert [entry.text for entry in rows["settings"][1:]] == ["none", "Karcher steps"]
    assert rows["overhead"][2].text == "29,494 flops, 30 trigonometric calls"


def test_the_overhead_has_the_papers_formulas_counts_and_times(runs):
    rows = {row.data["arm"]: row.data for row in overhead_table(read_run(runs["paper"])).rows}
    assert rows["none"]["flops"] is rows["none"]["paper_flops"] is rows["none"]["with_feedback"] is None
    for arm, operator in (("linear-learned", "linear"), ("spherical-learned", "spherical")):
        formula = rows[arm]["paper_flops"], rows[arm]["paper_trigonometric"]
        assert formula == paper_costs(768, 3, 3)[operator]
    share = []
    for seed in SEEDS:
        lines = (runs["paper"] / "linear-learned" / f"seed-{seed}" / "train" / "metrics.jsonl").read_text().splitlines()
        share += [json.loads(line)["feedback"] for line in lines]
    assert rows["linear-learned"]["passes"] == pytest.approx(1 + np.mean(share))
    assert rows["linear-learned"]["plain"] == pytest.approx(100.0)  # 10,000 tokens per second
    assert {row["calls"] for row in rows.values()} == {512}
    assert rows["none"]["milliseconds"] == pytest.approx(10.0)
    karcher = {row.data["arm"]: row.data for row in overhead_table(read_run(runs["paper-karcher"])).rows}
    assert [karcher[f"karcher-{n}"]["paper_trigonometric"] for n in (1, 3, 5)] == [12, 28, 44]
    assert [karcher[f"karcher-{n}"]["trigonometric"] for n in (1, 3, 5)] == [14, 30, 46]
    assert [karcher[f"karcher-{n}"]["operator_microseconds"] for n in (1, 3, 5)] == [None, 10.5, None]


def test_regimes_have_the_papers_values_at_the_end_of_training_alone(runs):
    table = regime_table(read_run(runs["paper"]))
    assert [row.entries[1].paper for row in table.rows] == ["24.20", "24.32", "24.24"]
    weights = [np.mean([row.data["weight"]["mean"]]) for row in table.rows]
    assert f"is {weights[2] / weights[1]:.2f} times that of linear (LERP), 95 % [" in table.notes[-1]
    assert table.notes[-1].endswith("; paper: 1.9.")
    assert regime_table(read_run(runs["paper-karcher"])) is None, "the ablation table has the same rows"


def test_the_weight_ratio_has_the_interval_of_paired_seeds(runs):
    weights = {}
    for arm in ("linear", "spherical"):
        for seed in SEEDS:
            file = runs["paper"] / f"{arm}-learned" / f"seed-{seed}" / "train" / "metrics.jsonl"
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            last = [line["weight"] for line in lines if line["step"] > STEPS - 10 and "weight" in line]
            weights.setdefault(arm, []).append(np.mean(last))
    x, y = map(np.array, (weights["spherical"], weights["linear"]))

    def excess(ratio: float) -> float:
        return stats.ttest_rel(x, ratio * y).pvalue - 0.05

    middle = x.mean() / y.mean()
    ends = optimize.brentq(excess, 0.5 * middle, middle), optimize.brentq(excess, middle, 2 * middle)
    assert f"[{ends[0]:.2f}, {ends[1]:.2f}]" in regime_table(read_run(runs["paper"])).notes[-1]


def test_the_loop_is_drawn_by_the_operators_and_fits_its_frame():
    figure = loop_figure()
    svg = figure.svg("x")
    for word in ("denoiser", "1  denoise", "2  keep", "3  feed back", "spherical", "linear", "still masked"):
        assert word in svg.replace("\u00a0", " "), word
    (axes,) = figure.figure.axes
    radius = [
        np.hypot(*(np.array(line.get_data()) - [[67.5], [14.0]])) for line in axes.lines if len(line.get_xdata()) > 2
    ]
    straight, round_ = radius
    np.testing.assert_allclose(round_, 24.0, rtol=1e-4)
    assert straight.min() < 20


def test_latex_has_the_papers_symbols_and_no_letters_that_it_cannot_set(chapters):
    quotes_and_accents = set("\u00e9\u2019\u201c\u201d")
    for chapter in chapters.values():
        for table in chapter.tables():
            assert {letter for letter in table.latex() if not letter.isascii()} <= quotes_and_accents, table.name
    assert latex("\u03c9_s") == r"$\omega$\_s"
