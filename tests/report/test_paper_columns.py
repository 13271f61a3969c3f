"""The columns that stand beside the paper's values: MAUVE at one seed, and the running mean of the training loss."""

import json
import math

import pytest
from made_up import STEPS, make_experiment, make_training

from arcmask.report.comparisons import comparisons
from arcmask.report.folder import read_run
from arcmask.report.step_metrics import at_step, window
from arcmask.report.tables import interval_table, main_table, seed_table
from arcmask.report.training_tables import regime_table


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """An experiment by the paper's protocol, with MAUVE at seed 25 and over three seeds."""
    folder = make_experiment(
        tmp_path_factory.mktemp("runs") / "paper", protocol="paper", budgets=(64, 128), length=1024
    )
    for path in folder.rglob("scores.json"):
        record = json.loads(path.read_text())
        scores = record["scores"]
        scores["mauve_over_seeds"] = scores["mauve"] | {"value": scores["mauve"]["value"] + 0.5}
        scores["mauve_over_seeds"]["half_width_over_seeds"] = 0.01
        scores["mauve"] |= {"kmeans_seeds": [25], "std_over_seeds": None, "half_width_over_seeds": None}
        path.write_text(json.dumps(record))
    return read_run(folder)


@pytest.mark.parametrize("build", [interval_table, seed_table])
def test_mauve_at_one_seed_has_the_papers_value_and_the_mean_over_seeds_is_a_column_of_its_own(build, paper):
    table = build(paper)
    ours = [i for i, head in enumerate(table.heads) if head.text.startswith("MAUVE \u2191")]
    mean = [i for i, head in enumerate(table.heads) if head.text.startswith("MAUVE, k-means seeds")]
    assert len(ours) == len(mean) == 1
    assert [j - i for i, j in zip(ours, mean, strict=True)] == [1] * len(ours)
    for row in table.rows:
        for i, j in zip(ours, mean, strict=True):
            assert row.entries[i].paper
            assert not row.entries[j].paper
            values = [float(row.entries[k].text.split(" ")[0]) for k in (i, j)]
            assert values[1] - values[0] == pytest.approx(0.5, abs=1e-4)
            if build is seed_table:
                assert row.entries[i].under == "k-means seed 25"
                assert row.entries[j].under.endswith(", 3 k-means seeds")
                assert all(f"{values[1] + side:.5f}" in row.entries[j].under for side in (-0.01, 0.01))
            else:
                assert "no interval" not in row.entries[j].under


def test_the_main_table_has_mauve_at_one_seed_and_says_where_the_mean_is(paper):
    table = main_table(paper)
    assert not [head for head in table.heads if "k-means seeds" in head.text]
    assert "MAUVE over several seeds of its clustering is in the table of means below." in table.notes
    assert "0.0117 \u00b1 0.0008" in [entry.paper for row in table.rows for entry in row.entries]


def test_the_mean_over_seeds_is_not_compared_again(paper):
    scores = {c.score for c in comparisons(paper)}
    assert "mauve" in scores
    assert "mauve_over_seeds" not in scores


def test_the_public_codes_perplexity_is_the_mean_since_the_start_of_the_epoch(tmp_path):
    folder = make_training(tmp_path / "run", {"operator": "spherical"}, 0.05, seed=1)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = at_step(read_run(folder), STEPS)
    whole = sum(line["nll"] for line in lines) / STEPS
    assert metrics["epoch_nll"] == pytest.approx(whole)
    begin = STEPS // 2 + 3
    text = "".join(json.dumps(line | {"epoch": int(line["step"] >= begin)}) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    for step in (begin - 1, begin, STEPS):
        start = 1 if step < begin else begin
        values = [line["nll"] for line in lines if start <= line["step"] <= step]
        metrics = at_step(read_run(folder), step)
        assert metrics["epoch_nll"] == pytest.approx(sum(values) / len(values))
        assert metrics["epoch_perplexity"] == pytest.approx(math.exp(sum(values) / len(values)))
        recent = [line["nll"] for line in lines if step - window(step) < line["step"] <= step]
        assert metrics["nll"] == pytest.approx(sum(recent) / len(recent))


def test_each_training_perplexity_is_named_and_the_papers_stands_with_the_public_codes(paper):
    table = regime_table(paper)
    heads = {f"{head.text}, {head.note}": i for i, head in enumerate(table.heads)}
    row = next(row for row in table.rows if row.data["arm"] == "spherical")
    for name, printed in (("PPL", "24.24"), ("NLL", "3.188")):
        assert row.entries[heads[f"{name}, training,\nepoch mean"]].paper == printed
        assert row.entries[heads[f"{name}, training,\nrecent mean"]].paper == ""
    assert "The epoch mean, which the public code logs" in table.caption
