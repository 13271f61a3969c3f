"""A slice of `paper-rehearsal`: every part of the paper's plan, interrupted, and shared by several processes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from evaluators import TOKENIZER, small_gpt2

from arcmask.data import PrepareConfig, prepare
from arcmask.errors import ArcmaskError
from arcmask.experiment import Changes, Plan, reproduce
from arcmask.experiment import run as running
from arcmask.recipes import find_experiment, plan_to_yaml
from arcmask.report import build_report

BASE = "runs/paper-rehearsal-base"
TABLES = {"main", "intervals", "seeds", "differences", "regimes", "karcher-steps", "top-k", "likelihood", "arms"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> dict[str, str]:
    """A corpus in the paper's row form, and an evaluator."""
    root = tmp_path_factory.mktemp("parts")
    (root / "text").mkdir()
    for number in range(12):
        words = [f"We hold truth {number} to be self-evident, that word {word} is equal. " for word in range(40)]
        (root / "text" / f"{number}.txt").write_text("".join(words))
    settings = {"tokenizer": "gpt2", "length": 16, "row_form": "enclosed", "holdout": "every:3"}
    prepare(PrepareConfig(corpus=str(root / "text"), out=str(root / "data"), **settings))
    small_gpt2().save_pretrained(root / "evaluator")
    TOKENIZER.save(root / "evaluator")
    return {"data": str(root / "data"), "evaluator": str(root / "evaluator"), "features": str(root / "evaluator")}


def slice_of(parts: dict[str, str]) -> Plan:
    sizes = {
        "seeds": [1, 2],
        "budgets": [2],
        "samples": 20,
        "steps": 3,
        "batch_size": 4,
        "micro_batch": 1,
        "length": 16,
    }
    plan = Changes(**sizes, **parts).apply(find_experiment("paper-rehearsal"))
    short = {"steps": 4, "batch_size": 4, "micro_batch": 1, "save_every": 2, "warm_up": 1, "validate_every": 0}
    short_arms = {
        name: replace(arm, train=replace(arm.train, steps=2, warm_up=1, validate_every=0, save_every=1))
        for name, arm in plan.ablations.items()
    }
    arms = {
        name: replace(arm, train=replace(arm.train, warm_up=1, validate_every=0, save_every=1))
        for name, arm in plan.arms.items()
    }
    plan = replace(plan, pretrain=replace(plan.pretrain, **short), arms=arms, ablations=short_arms, likelihood_rows=4)
    return replace(plan, generate=False)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of all training runs, the base among them."""
    files = [max(run.iterdir()) / "model.safetensors" for run in sorted(folder.rglob("checkpoints"))]
    tensors = {str(file.relative_to(folder)): safetensors.torch.load_file(file) for file in files}
    return {f"{file} {name}": tensor for file, some in tensors.items() for name, tensor in some.items()}


def tables(report: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (report / "tables").glob("*.md") if path.stem != "overhead"}


def test_the_recipe_is_the_papers_plan_at_another_size():
    paper, rehearsal = find_experiment("paper"), find_experiment("paper-rehearsal")
    assert list(rehearsal.arms) == list(paper.arms)
    assert list(rehearsal.ablations) == list(paper.ablations) == ["karcher-1", "karcher-5", "top-1", "top-5"]
    assert (rehearsal.seeds, len(rehearsal.budgets)) == (paper.seeds, len(paper.budgets))
    ratios = [budget / plan.generation.length for plan in (paper, rehearsal) for budget in plan.budgets]
    assert ratios[:4] == ratios[4:]
    assert rehearsal.prepare.row_form == paper.prepare.row_form == "enclosed"
    assert rehearsal.generation.features is not None
    assert (rehearsal.protocol, rehearsal.generation.top_p) == (None, paper.generation.top_p)
    assert all(config.dropout == 0 for config in rehearsal.trainings)


@pytest.mark.slow
def test_interrupted_twice_it_ends_with_the_tables_of_an_unbroken_run(parts, tmp_path, monkeypatch):
    plan, reports = slice_of(parts), []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name, stops in (("unbroken", ()), ("broken", ("generate", "evaluate_set"))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for stop in stops:
            with monkeypatch.context() as patch:
                patch.setattr(running, stop, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    reproduce(plan)
        reports.append(build_report([reproduce(plan)]).parent)
    assert (tmp_path / "unbroken" / BASE / "config.yaml").is_file()
    first, second = map(tables, reports)
    assert set(first) >= TABLES
    assert first == second
    folders = [tmp_path / name / "runs" for name in ("unbroken", "broken")]
    torch.testing.assert_close(*map(weights, folders), rtol=0, atol=0)
    karcher = json.loads((reports[0] / "tables" / "karcher-steps.json").read_text())
    assert "step 2" in first["karcher-steps"]
    assert json.dumps(karcher).count('"karcher_steps"') == 3, "1 and 5 steps beside the arm with 3"


def test_a_plan_with_ablations_refuses_what_makes_no_sense():
    plan = find_experiment("paper-rehearsal")
    base = replace(plan.arms["none"], train=None)
    for changes, sentence in (
        ({"ablations": {"none": plan.ablations["top-1"]}}, "'none' is both an arm and an ablation"),
        ({"ablations": {"frozen": base}}, "the ablation 'frozen' is not trained"),
        ({"pretrain": replace(plan.pretrain, data="elsewhere")}, "trains its base on elsewhere, but its data are"),
    ):
        with pytest.raises(ArcmaskError, match=sentence):
            replace(plan, **changes)
    assert Changes(arms=["none", "top-1"]).apply(plan).ablations.keys() == {"top-1"}
    assert Changes(base="other").apply(plan).pretrain is None


@pytest.mark.slow
def test_two_and_four_ranks_find_what_one_finds(parts, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(plan_to_yaml(slice_of(parts)))
    found = {}
    for ranks in (1, 2, 4):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", "--"] if ranks > 1 else ["-m"]
        command = [sys.executable, *launch, "arcmask", "reproduce", str(path)]
        subprocess.run(command, check=True, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
        found[ranks] = weights(folder / "runs"), tables(folder / "runs" / "paper-rehearsal" / "report")
    for ranks in (2, 4):
        torch.testing.assert_close(found[ranks][0], found[1][0], rtol=0, atol=1e-6)
        assert found[ranks][1] == found[1][1]
