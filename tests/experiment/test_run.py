"""A small experiment from the command line: what it leaves, that it does nothing twice, and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest

from arcmask.cli import main
from arcmask.errors import ArcmaskError
from arcmask.experiment import Changes, reproduce
from arcmask.experiment.estimate import find_costs
from arcmask.experiment.run import Experiment, Stage, assign
from arcmask.recipes import find_experiment

pytestmark = pytest.mark.usefixtures("blank_figures")
ARMS, SEEDS, BUDGETS = ["none", "spherical-0.3"], [1, 2], [2, 5]


@pytest.fixture
def plan(base, corpus):
    changes = Changes(
        arms=ARMS,
        seeds=SEEDS,
        budgets=BUDGETS,
        samples=3,
        steps=4,
        batch_size=4,
        base=str(base),
        data=corpus,
        length=16,
        evaluator="none",
    )
    return changes.apply(find_experiment("quickstart"))


@pytest.fixture(scope="module")
def unbroken(base, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    main(command(base, corpus, folder))
    return folder


def command(base, corpus, folder) -> list[str]:
    settings = ["--arms", *ARMS, "--seeds", "1", "2", "--budgets", "2", "5", "--samples", "3", "--steps", "4"]
    settings += ["--batch_size", "4", "--base", str(base), "--data", corpus, "--length", "16", "--evaluator", "none"]
    return ["reproduce", "quickstart", "--run", str(folder), *settings]


def test_every_cell_has_its_results(unbroken):
    plan = json.loads((unbroken / "plan.json").read_text())
    assert (plan["recipe"], plan["seeds"], plan["budgets"], plan["tokenizer"]) == (
        "quickstart",
        SEEDS,
        BUDGETS,
        "text8",
    )
    assert plan["arms"]["spherical-0.3"]["train"]["fixed_weight"] == 0.3
    for arm in ARMS:
        for seed in SEEDS:
            cell = unbroken / arm / f"seed-{seed}"
            likelihood = json.loads((cell / "likelihood.json").read_text())
            assert set(likelihood) == ({"plain"} if arm == "none" else {"plain", "two_pass"})
            for budget in BUDGETS:
                scores = json.loads((cell / f"steps-{budget}" / "scores.json").read_text())
                assert scores["count"] == 3
                assert {"entropy", "real_word_rate"} <= set(scores["scores"])
                lines = (cell / f"steps-{budget}" / "samples.jsonl").read_text().splitlines()
                timing = json.loads((cell / f"steps-{budget}" / "timing.json").read_text())
                assert timing["calls"] == sum(json.loads(line)["calls"] for line in lines)
                assert timing["seconds"] > 0
    overhead = json.loads((unbroken / "report" / "tables" / "overhead.json").read_text())["rows"]
    assert all(row["milliseconds"] > 0 and row["plain"] > 0 for row in overhead)
    assert [row["flops"] is None for row in overhead] == [True, False]


def test_arms_share_data_noise_and_gates_for_a_seed(unbroken):
    for seed in SEEDS:
        seen = []
        for arm in ARMS:
            lines = (unbroken / arm / f"seed-{seed}" / "train" / "metrics.jsonl").read_text().splitlines()
            seen.append([(line["masked"], line["feedback"]) for line in map(json.loads, lines)])
        assert seen[0] == seen[1]


def test_what_is_there_is_not_done_again(plan, unbroken):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file()}
    before.pop(unbroken / "plan.json")
    before.pop(unbroken / ".lock")  # it names the process that holds the folder
    reproduce(plan, unbroken)
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def test_a_kill_between_the_samples_and_their_time_leaves_nothing_behind(plan, unbroken, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    timing = next(folder.rglob("timing.json"))
    samples = timing.with_name("samples.jsonl").read_bytes()
    timing.rename(timing.with_name("timing.json.tmp"))
    reproduce(plan, folder)
    assert json.loads(timing.read_text())["calls"] == 0, "the samples were all there"
    assert timing.with_name("samples.jsonl").read_bytes() == samples
    assert not list(folder.rglob("*.tmp"))


def test_another_plan_in_the_same_folder_is_refused(plan, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan.to_json() | {"length": 4}))
    with pytest.raises(ArcmaskError, match=r"has other settings \(length is 4 there and 16 here\); give another name"):
        reproduce(plan, folder)


def test_a_folder_of_something_else_is_left_alone(plan, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ArcmaskError, match=r"is not empty and has no plan\.json; give another folder"):
        reproduce(plan, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def list_stages(plan, folder) -> list[Stage]:
    experiment = Experiment(plan, folder)
    experiment.costs = find_costs(plan, "A100")  # which is not timed
    return list(experiment.stages())


def test_a_seed_is_sampled_before_it_is_scored(plan, tmp_path):
    words = ["train", "3", "likelihood", "scores"]  # "3 samples of …"
    kinds = [stage.name.split()[0] for stage in list_stages(plan, tmp_path)][1:]
    once = [kind for kind, _ in groupby(kinds)]
    assert once == ["train", "3", "train", "3", "likelihood", "scores"] * len(SEEDS)
    assert set(kinds) == set(words)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_every_rank_has_its_share_of_bounds_and_of_scores(is_resumed, plan, tmp_path):
    stages = list_stages(replace(plan, budgets=(1, 2, 3, 4)), tmp_path)
    # After an interruption every other stage is done, which gave all the work to half of the ranks.
    done = [is_resumed and number % 2 == 1 for number in range(len(stages))]
    owners = assign(stages, done, 4)
    left = {number for number, stage in enumerate(stages) if not done[number] and not stage.together}
    assert set(owners) == left
    for kind in ("likelihood", "scores"):
        shares = Counter(owner for number, owner in owners.items() if stages[number].name.startswith(kind))
        counts = [shares[rank] for rank in range(4)]
        assert max(counts) - min(counts) <= 1, kind


@pytest.mark.slow
def test_two_ranks_find_what_one_finds(unbroken, base, corpus, tmp_path):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "--", "arcmask"]
    words = command(base, corpus, tmp_path / "run")
    subprocess.run([sys.executable, *launch, *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert (tmp_path / "run" / "report" / "report.html").is_file()
    for arm in ARMS:
        for seed in SEEDS:
            one, two = (folder / arm / f"seed-{seed}" for folder in (unbroken, tmp_path / "run"))
            first, second = (json.loads((cell / "likelihood.json").read_text())["plain"]["nats"] for cell in (one, two))
            assert abs(first - second) < 1e-8
            for budget in BUDGETS:
                texts = [
                    sorted(json.loads(line)["text"] for line in path.read_text().splitlines())
                    for path in (cell / f"steps-{budget}" / "samples.jsonl" for cell in (one, two))
                ]
                assert texts[0] == texts[1]
