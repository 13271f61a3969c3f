"""Plans as files: one round trip for every recipe, a plan of one's own in YAML and in Python, and what is refused."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from arcmask.cli import main
from arcmask.errors import ArcmaskError
from arcmask.experiment import Plan
from arcmask.recipes import EXPERIMENTS, add_operators, find_experiment, plan_to_yaml

pytestmark = pytest.mark.usefixtures("blank_figures")
DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"
EXAMPLE = re.search(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]


def written(plan: Plan, path: Path) -> str:
    path.write_text(plan_to_yaml(plan))
    return str(path)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_a_plan_that_is_written_and_read_is_the_same_plan(name, tmp_path):
    plan = find_experiment(name)
    assert find_experiment(written(plan, tmp_path / "plan.yaml")) == plan


def test_the_round_trip_keeps_every_kind_of_arm(tmp_path):
    plan = add_operators(find_experiment("quickstart"), ["renormalized"])
    arms = plan.arms | {"cold": replace(plan.arms["base"], temperature=0.5, colour="#123456")}
    plan = replace(plan, arms=arms, prepare=None, budgets=())
    assert find_experiment(written(plan, tmp_path / "plan.yaml")) == plan


def test_what_is_printed_is_what_config_and_the_file_name_read(tmp_path, capsys):
    main(["reproduce", "quickstart", "--seeds", "4", "5", "--operators", "renormalized", "--print-config"])
    text = capsys.readouterr().out
    (tmp_path / "plan.yaml").write_text(text)
    assert yaml.safe_load(text)["seeds"] == [4, 5]
    for words in (["--config", str(tmp_path / "plan.yaml")], [str(tmp_path / "plan.yaml")]):
        main(["reproduce", *words, "--print-config"])
        assert capsys.readouterr().out == text
        main(["reproduce", *words, "--samples", "3", "--print-config"])
        assert yaml.safe_load(capsys.readouterr().out)["generation"]["samples"] == 3


def test_a_file_of_options_is_still_read(tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("recipe: quickstart\nseeds: [7]\narms: [none, base]\n")
    main(["reproduce", "--config", str(tmp_path / "options.yaml"), "--print-config"])
    plan = yaml.safe_load(capsys.readouterr().out)
    assert (plan["seeds"], sorted(plan["arms"])) == ([7], ["base", "none"])


def test_the_documented_plan_runs(base, corpus, tmp_path, monkeypatch, capsys):
    """With the small model and corpus of the tests in place of the shipped ones."""
    values = yaml.safe_load(EXAMPLE)
    assert values["base"] == "sotu-tiny"
    assert find_experiment(write(tmp_path / "as-printed.yaml", values)).operators
    values |= {"base": str(base), "data": corpus, "prepare": None, "likelihood_rows": 8}
    values["generation"] |= {"length": 16, "samples": 2}
    values["train"]["steps"] = 2
    path = write(tmp_path / "my_plan.yaml", values)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["arcmask", "reproduce", path, "--seeds", "1"])
    main(["reproduce", path, "--seeds", "1", "--budgets", "2"])
    assert capsys.readouterr().out.endswith("runs/my_plan/report/report.html\n")
    for arm in values["arms"]:
        assert (tmp_path / "runs" / "my_plan" / arm / "seed-1" / "steps-2" / "scores.json").is_file()


def write(path: Path, values: object) -> str:
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


def test_a_plan_is_a_function_in_a_python_file(tmp_path, capsys):
    path = tmp_path / "my_plan.py"
    path.write_text(
        "from dataclasses import replace\nfrom arcmask.recipes import find_experiment\n"
        "def plan():\n    return replace(find_experiment('quickstart'), recipe='mine', seeds=(8,))\n"
        "def other():\n    return replace(plan(), recipe='other')\n"
        "def number():\n    return 3\n"
        "def broken():\n    return 1 / 0\n"
    )
    assert (find_experiment(str(path)).recipe, find_experiment(f"{path}:other").recipe) == ("mine", "other")
    main(["reproduce", f"{path}:other", "--print-config"])
    assert capsys.readouterr().out.startswith("recipe: other\n")
    for name, sentence in {
        f"{path}:number": "number must return an arcmask.experiment.Plan, but returned 3",
        f"{path}:broken": "broken failed (ZeroDivisionError: division by zero)",
        f"{path}:absent": "has no function 'absent'; it has: replace, find_experiment, plan",
        str(tmp_path / "no.py"): "no.py to take the plan plan from",
        str(tmp_path / "no.yaml"): "no.yaml cannot be read: No such file or directory",
    }.items():
        with pytest.raises(ArcmaskError, match=re.escape(sentence)):
            find_experiment(name)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": [1]}, "unknown setting 'seed' in {}; choose one of: ablations, arms, base, baseline, budgets, "),
        ({"base": None}, "{} needs base"),
        ({"seeds": "1"}, "seeds in {} is '1', but must be a list of numbers"),
        ({"seeds": [1, "x"]}, "seeds in {} is 'x', but must be a whole number"),
        ({"seeds": [1, 1]}, "{}: the seeds are 1, 1, but each must occur once"),
        ({"arms": ["none"]}, "arms in {} must be settings by name, but is ['none']"),
        ({"arms": {"A b": {}}}, "{}: the arm 'A b' names a folder: use lower-case"),
        (
            {"arms": {"a": {"train": {"stepz": 3}}}},
            "unknown setting 'stepz' in train of the arm a in {}; choose one of: ",
        ),
        (
            {"arms": {"a": {"train": {"steps": "many"}}}},
            "steps in train of the arm a in {} is 'many', but must be a whole",
        ),
        ({"arms": {"a": {"train": {"curve": "up"}}}}, "is 'up', but must be constant or cosine"),
        ({"arms": {"a": {"train": {"steps": 0}}}}, "train of the arm a in {}: steps is 0, but must lie between 1"),
        ({"arms": {"a": {"train": {"operator": "x"}}}}, "unknown operator 'x'; choose one of: "),
        ({"arms": {"a": {"tune": {}}}}, "tune of the arm a in {} needs operator"),
        ({"generation": {"samples": 3}}, "generation in {} needs length"),
        ({"baseline": "x"}, "{}: unknown baseline 'x'; choose one of: "),
        ({"recipe": "../up"}, "{}: the recipe '../up' names a folder: use letters"),
        (
            {"prepare": {"corpus": "sotu", "out": "elsewhere"}},
            "{}: the plan prepares elsewhere, but its data are data/",
        ),
    ],
)
def test_a_bad_setting_is_one_sentence(change, sentence, tmp_path, capsys):
    path = write(tmp_path / "plan.yaml", yaml.safe_load(EXAMPLE) | change)
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", path, "--dry-run"])
    message = capsys.readouterr().err
    assert sentence.format(path) in message
    assert message.count("\n") == 1


def test_a_number_without_a_point_is_a_number(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(re.sub(r"learning_rate: \S+", "learning_rate: 3e-4", EXAMPLE))
    trains = [arm.train for arm in find_experiment(str(path)).arms.values() if arm.train is not None]
    assert {train.learning_rate for train in trains} == {3e-4}


def test_the_title_names_the_base_of_the_experiment():
    plan = find_experiment("quickstart")
    assert plan.to_json()["title"] == "Quickstart: feedback in sotu-tiny"
    arms = {"base": plan.arms["base"]}
    other = replace(plan, base="somebody/bert", arms=arms)
    assert other.to_json()["title"] == "Quickstart: feedback in somebody/bert"
