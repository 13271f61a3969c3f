"""What `arcmask reproduce` prints at its end: the conclusion, then tables that fit in 80 columns."""

import io
import json
import shutil
from pathlib import Path

import pytest
import rich.console
from made_up import BUDGETS, FROZEN, make_curves, make_experiment

from arcmask.report import terminal_table
from arcmask.report.comparisons import comparisons, main_pairs
from arcmask.report.conclusion import conclusion
from arcmask.report.folder import read_run

LONG = {"none": ("no feedback", {"operator": "none"}, 0.0)}
for operator, label in (("linear", "linear (LERP)"), ("spherical", "spherical (SLERP)")):
    LONG[f"{operator}-0.3"] = (f"{label}, weight 0.3", {"operator": operator, "fixed_weight": 0.3}, 0.03)
    LONG[f"{operator}-learned"] = (f"{label}, learned weight", {"operator": operator}, 0.05)


def printed(folder: Path, width: int = 80) -> list[str]:
    console = rich.console.Console(width=width, file=io.StringIO())
    console.print(terminal_table(folder))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """All kinds of arms, all scores, and perplexities above a thousand."""
    folder = make_experiment(tmp_path_factory.mktemp("terminal") / "long", arms=FROZEN | LONG)
    for path in folder.glob("*/seed-*/steps-*/scores.json"):
        content = json.loads(path.read_text())
        seed = int(path.parent.parent.name.removeprefix("seed-"))
        content["scores"]["generative_perplexity"]["value"] = 5026.7 + 137.59 * (seed - 2)
        if path.parts[-4] == "none":
            content["scores"]["generative_perplexity"]["value"] -= 1359.2 + 137.59 * (seed - 2) ** 2
        path.write_text(json.dumps(content))
    make_curves(folder, b"")
    return folder


def test_no_line_is_longer_than_eighty_columns_and_no_row_is_broken(long):
    lines, wide = printed(long), printed(long, 400)
    assert max(map(len, lines)) <= 80
    assert "\u2026" not in "".join(lines), "something was cut off"
    rows = [line for line in wide if "  " in line.strip() or line.startswith(("vs. ", "\u2500"))]
    assert len(rows) == 2 * 2 + (len(FROZEN) + len(LONG)) * len(BUDGETS) + len(main_pairs(read_run(long))) + 5
    assert [line for line in lines if line in rows] == rows


def test_the_conclusion_comes_first_and_perplexity_last(long):
    lines = printed(long, 1000)
    experiment = read_run(long)
    assert lines[0] == conclusion(experiment, comparisons(experiment))
    heads = [line for line in lines if line.startswith("arm ")]
    assert len(heads) == 2
    assert all(head.endswith("Gen PPL") for head in heads)


def test_means_and_differences_are_those_of_the_run_folder(long):
    text = "\n".join(printed(long))
    values = [json.loads(p.read_text())["two_pass"]["nats"] for p in long.glob("spherical-0.3/*/likelihood.json")]
    assert f"spherical-0.3         16        {sum(values) / 3:.4f}" in text
    # The differences are 1359.2 and twice 1359.2 + 137.59: a half width of 4.3027 * 79.44 / sqrt(3).
    assert "+1451 \u00b1197\u2717" in text


def test_perplexities_near_one_keep_their_digits(tmp_path):
    folder = make_experiment(tmp_path / "run", arms=LONG)
    for path in folder.glob("*/seed-*/steps-*/scores.json"):
        content = json.loads(path.read_text())
        seed = int(path.parent.parent.name.removeprefix("seed-"))
        is_plain = path.parts[-4] == "none"
        content["scores"]["generative_perplexity"]["value"] = 1.3512 if is_plain else 1.3389 + 0.001 * (seed - 2)
        path.write_text(json.dumps(content))
    text = "\n".join(printed(folder))
    assert "  1.351" in text
    assert "\u22120.012 \u00b10.002\u2713" in text  # the half width is 4.3027 * 0.001 / sqrt(3)


def test_without_an_evaluator_there_is_no_perplexity(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "plain")
    for path in folder.glob("*/seed-*/steps-*/scores.json"):
        content = json.loads(path.read_text())
        del content["scores"]["generative_perplexity"]
        path.write_text(json.dumps(content))
    assert "PPL" not in "".join(printed(folder))


def test_the_terminal_says_what_is_missing(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "part")
    (folder / "none" / "seed-1" / "steps-16" / "scores.json").unlink()
    assert "missing: no feedback, seed 1: scores at T = 16" in printed(folder)


@pytest.mark.parametrize("change", [{"budgets": ()}, {"seeds": (1,)}, {"arms": {"none": LONG["none"]}}])
def test_little_is_enough_for_tables(change, tmp_path):
    lines = printed(make_experiment(tmp_path / "little", **change))
    assert lines[0] or "budgets" in change
    assert any(line.startswith("none") for line in lines)
