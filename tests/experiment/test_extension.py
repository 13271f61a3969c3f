"""An experiment that grows: more seeds, budgets, samples and arms continue what is there; other plans are refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arcmask.errors import ArcmaskError
from arcmask.experiment import Changes, Plan, reproduce
from arcmask.experiment import run as running
from arcmask.experiment.extension import check_extension
from arcmask.recipes import find_experiment

pytestmark = pytest.mark.usefixtures("blank_figures")
SMALL: dict[str, Any] = {"arms": ["none", "linear-0.3"], "seeds": [1], "budgets": [2], "samples": 2}
LARGE: dict[str, Any] = {
    "arms": ["none", "linear-0.3", "spherical-0.3"],
    "seeds": [2, 1],
    "budgets": [2, 3],
    "samples": 3,
}
NOT_RESULTS = ("tokens_per_second", "memory_gb", "checkpoint")  # time, and the path of the folder


@pytest.fixture(scope="module")
def make_plan(base, corpus):
    def make(**changes: Any) -> Plan:
        sizes = {"steps": 2, "batch_size": 4, "length": 16, "base": str(base), "data": corpus, "evaluator": "none"}
        plan = Changes(**(sizes | changes)).apply(find_experiment("quickstart-operators"))
        return replace(plan, likelihood_rows=8, generate=False)

    return make


@pytest.fixture(scope="module")
def whole(make_plan, tmp_path_factory) -> Path:
    """The large plan from the start."""
    return reproduce(make_plan(**LARGE), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def small(make_plan, tmp_path_factory) -> Path:
    return reproduce(make_plan(**SMALL), tmp_path_factory.mktemp("small") / "run")


def results(folder: Path) -> dict[str, Any]:
    """All results by path."""
    read: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json*")):
        text = path.read_text().replace(str(folder), "")
        records = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
        for record in records if isinstance(records, list) else []:
            for name in NOT_RESULTS:
                record.pop(name, None)
        if "cache" not in path.parts and path.name not in ("cost.json", "timing.json"):
            read[str(path.relative_to(folder))] = records
    read["plan.json"].pop("command")
    read["base/inspect/inspect.json"].pop("out")  # where it was inspected, before the folder was copied
    read["base/inspect/inspect.json"]["readings"].pop("cost")
    return read


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def test_an_extended_experiment_equals_the_whole_one_after_interruptions(
    make_plan, small, whole, tmp_path, monkeypatch
):
    folder = copy(small, tmp_path / "run")
    kept = [path for path in folder.rglob("*") if path.name in ("likelihood.json", "metrics.jsonl", "trainer.json")]
    before = {path: path.stat().st_mtime_ns for path in kept}

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for name in ("train", "generate", "likelihood", "evaluate_set"):
        with monkeypatch.context() as patch:
            patch.setattr(running, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                reproduce(make_plan(**LARGE), folder)
    reproduce(make_plan(**LARGE), folder)
    assert results(folder) == results(whole)
    assert {path: path.stat().st_mtime_ns for path in kept} == before, "what was there was not computed again"


def test_more_samples_are_scored_again_and_old_ones_kept(make_plan, small, tmp_path):
    folder = copy(small, tmp_path / "run")
    cell = folder / "none" / "seed-1" / "steps-2"
    old = (cell / "samples.jsonl").read_text()
    reproduce(make_plan(**SMALL | {"samples": 4}), folder)
    assert (cell / "samples.jsonl").read_text().startswith(old)
    assert json.loads((cell / "scores.json").read_text())["count"] == 4
    assert json.loads((folder / "plan.json").read_text())["samples"] == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seeds": [2]}, "has seed 1; a plan can add to them but not leave them out, so name them too or give another"),
        ({"budgets": []}, "has budget 2; a plan"),
        ({"arms": ["spherical-0.3"], "samples": 1}, "has arms linear-0.3 none, 2 samples per cell; a plan"),
        (
            {"steps": 3},
            "other settings (steps of linear-0.3 is 2 there and 3 here; steps of none is 2 there and 3 here)",
        ),
        ({"length": 8, "seeds": [1, 2]}, "has other settings (length is 16 there and 8 here); give another name"),
    ],
)
def test_what_would_change_or_lose_results_is_refused_and_nothing_is_touched(changes, sentence, make_plan, small):
    before = files(small)
    with pytest.raises(ArcmaskError, match=re.escape(sentence)):
        reproduce(make_plan(**SMALL | changes), small)
    assert files(small) == before


def test_a_check_that_fails_after_the_comparison_leaves_the_folder_as_it_was(make_plan, small, monkeypatch):
    before = files(small)

    def refuse(*_: Any) -> None:
        raise ArcmaskError("the disk is full")

    monkeypatch.setattr(running, "check_fit", refuse)
    with pytest.raises(ArcmaskError, match="the disk is full"):
        reproduce(make_plan(**SMALL | {"seeds": [1, 2]}), small)
    assert files(small) == before


def test_settings_that_do_not_change_results_may_differ(make_plan, tmp_path):
    plan = make_plan(**SMALL)
    stored = json.loads(json.dumps(plan.to_json()))

    def changed(**settings: Any) -> dict[str, Any]:
        arms = {name: replace(arm, train=replace(arm.train, **settings)) for name, arm in plan.arms.items()}
        return replace(plan, arms=arms, title="another").to_json()

    check_extension(tmp_path, stored, changed(save_every=1, keep=5, tracker="tensorboard"))
    check_extension(tmp_path, stored, changed(micro_batch=2))  # the recipe has no dropout
    other_batches = replace(plan, generation=replace(plan.generation, batch_size=7))
    check_extension(tmp_path, stored, other_batches.to_json())
    with_dropout = json.loads(json.dumps(changed(dropout=0.1)))
    smaller = changed(dropout=0.1, micro_batch=2)
    check_extension(tmp_path, with_dropout, smaller)  # no step was saved, perhaps since memory ran out
    (tmp_path / "none/seed-1/train/checkpoints/step-0000001").mkdir(parents=True)
    with pytest.raises(ArcmaskError, match="micro_batch of none is 16 there and 2 here") as refusal:
        check_extension(tmp_path, with_dropout, smaller)
    assert "linear-0.3" not in str(refusal.value)
    arms = {name: replace(arm, temperature=0.5) for name, arm in plan.arms.items()}
    with pytest.raises(ArcmaskError, match=r"temperature of none is 1\.0 there and 0\.5 here"):
        check_extension(tmp_path, stored, replace(plan, arms=arms).to_json())
