"""Arms with a frozen backbone beside trained ones: their samples and bounds, resuming, the report, what is refused."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import arcmask
from arcmask.checkpoint import load, save
from arcmask.cli import main
from arcmask.data import PrepareConfig, open_prepared, prepare
from arcmask.errors import ArcmaskError, Stopped
from arcmask.experiment import Arm, Changes, Plan, Tuning, reproduce
from arcmask.feedback import Confidence, SoftMask
from arcmask.model import MDLM
from arcmask.objective import TwoPass, likelihood_bound
from arcmask.recipes import add_operators, find_experiment, plan_to_yaml
from arcmask.report.folder import read_run

pytestmark = pytest.mark.usefixtures("blank_figures")
KINDS = {
    "base": "base",
    "base-temperature-0.9": "base",
    "linear-tuned": "tuned",
    "spherical-tuned": "tuned",
    "none": "trained",
    "spherical-0.3": "trained",
}
SEEDS, ROWS, TUNED = (1, 2), 100, 16  # TUNED: rows to fit feedback on
RESULTS = ("likelihood.json", "samples.jsonl", "scores.json", "feedback.json", "model.safetensors")


@pytest.fixture(scope="module")
def fed_base(base, tmp_path_factory) -> str:
    """The small base with feedback of its own, which the base arms must not use."""
    model = load(base)
    model.feedback = SoftMask("linear", confidence=Confidence(fixed=0.5))
    folder = tmp_path_factory.mktemp("fed-base") / "base"
    save(model, folder)
    return str(folder)


@pytest.fixture(scope="module")
def plan(fed_base, corpus) -> Plan:
    sizes = {"seeds": SEEDS, "budgets": [3], "samples": 3, "steps": 2, "batch_size": 4, "length": 16}
    changes = Changes(arms=list(KINDS), base=fed_base, data=corpus, evaluator="none", features="none", **sizes)
    plan = changes.apply(find_experiment("quickstart-long"))
    arms = {
        name: arm if arm.tune is None else replace(arm, tune=replace(arm.tune, rows=TUNED))
        for name, arm in plan.arms.items()
    }
    return replace(plan, arms=arms, likelihood_rows=ROWS)


@pytest.fixture(scope="module")
def unbroken(plan, tmp_path_factory) -> Path:
    folder = reproduce(plan, tmp_path_factory.mktemp("unbroken") / "run")
    main(["report", str(folder)])
    return folder


def results(folder: Path) -> dict[str, bytes]:
    """The bytes of all results; the samples of an arm name the folder that they come from."""
    paths = [path for arm in KINDS for path in (folder / arm).rglob("*") if path.name in RESULTS]
    paths = [path for path in paths if "checkpoints" not in path.parts]
    root = str(folder).encode()
    return {str(path.relative_to(folder)): path.read_bytes().replace(root, b"") for path in paths}


def bound(folder: Path, arm: str, seed: int) -> dict:
    return json.loads((folder / arm / f"seed-{seed}" / "likelihood.json").read_text())


@pytest.mark.parametrize(("arm", "temperature"), [("base", "1.0"), ("base-temperature-0.9", "0.9")])
def test_a_base_arm_samples_plainly_at_its_temperature(arm, temperature, unbroken, fed_base, tmp_path):
    sizes = ["--num", "3", "--length", "16", "--steps", "3", "--seed", "2", "--temperature", temperature]
    main(["sample", fed_base, "--feedback", "none", *sizes, "--out", str(tmp_path / "samples.jsonl")])
    cell = unbroken / arm / "seed-2" / "steps-3"
    assert (tmp_path / "samples.jsonl").read_bytes() == (cell / "samples.jsonl").read_bytes()


def test_a_tuned_arm_is_what_tune_writes_and_its_samples_use_it(unbroken, fed_base, corpus, tmp_path, capsys):
    tuned = unbroken / "spherical-tuned" / "tuned"
    assert arcmask.load(tuned).feedback.operator == "spherical"
    main(["tune", fed_base, "--data", corpus, "--rows", str(TUNED), "--out", str(tmp_path / "tuned")])
    advice, folder = capsys.readouterr().out.splitlines()[-2:]
    assert advice.startswith("Fit --operator linear too")
    assert folder == str(tmp_path / "tuned")
    assert (tmp_path / "tuned" / "feedback.json").read_bytes() == (tuned / "feedback.json").read_bytes()
    lines = (unbroken / "spherical-tuned" / "seed-1" / "steps-3" / "samples.jsonl").read_text().splitlines()
    used = json.loads(lines[0])["feedback_settings"]
    band = {"band": json.loads(lines[0])["band"]}
    assert used | band == json.loads((tuned / "feedback.json").read_text())


def test_the_bound_of_a_seed_has_rows_and_noise_of_that_seed_for_all_arms(unbroken, fed_base, corpus):
    held_out = open_prepared(corpus, "validation")
    numbers = [held_out.spread(ROWS, seed) for seed in SEEDS]
    assert len(set(numbers[0]) | set(numbers[1])) == 2 * ROWS < len(held_out), "no row is used twice"
    for seed, chosen in zip(SEEDS, numbers, strict=True):
        rows = held_out.rows(chosen)
        expected = likelihood_bound(TwoPass(load(fed_base), None), rows.split(16), feedback=False, seed=seed)
        assert bound(unbroken, "base", seed)["plain"]["nats"] == expected.nats
        assert set(bound(unbroken, "base", seed)) == {"plain"}
        # The backbone is the base's, so without feedback a tuned arm is the base.
        assert bound(unbroken, "linear-tuned", seed)["plain"]["nats"] == expected.nats
        assert bound(unbroken, "linear-tuned", seed)["two_pass"]["feedback"] == "linear"


def test_the_plan_and_the_report_know_the_kinds_of_arms(unbroken, plan):
    stored = json.loads((unbroken / "plan.json").read_text())["arms"]
    assert stored["base"] == {"label": "base", "baseline": True, "train": None, "tune": None, "temperature": 1.0}
    assert stored["spherical-tuned"]["tune"] == {
        "operator": "spherical",
        "fixed": False,
        "goal": "bound",
        "rows": TUNED,
    }
    assert set(stored["none"]) == {"label", "baseline", "train"}
    experiment = read_run(unbroken)
    assert {name: arm.kind for name, arm in experiment.arms.items()} == KINDS
    assert list(experiment.arms) == list(KINDS), "the base, tuned arms, trained arms"
    assert {name: arm.operator for name, arm in experiment.arms.items()} == {
        name: arm.operator for name, arm in plan.arms.items()
    }
    assert experiment.arms["base-temperature-0.9"].temperature == 0.9
    assert experiment.missing() == []
    assert all(arm.label in (unbroken / "report" / "report.html").read_text() for arm in plan.arms.values())


def test_the_report_repeats_the_sampling_of_the_base(unbroken, fed_base):
    page = (unbroken / "report" / "report.html").read_text()
    assert f"arcmask sample {fed_base}" in page
    assert "--feedback none" in page


@pytest.mark.slow
def test_interrupted_after_every_fifth_stage_it_ends_with_the_same_numbers(plan, unbroken, tmp_path, monkeypatch):
    stages, folder, attempts = [], tmp_path / "run", 0

    def stop_after_five(line: str) -> None:
        if len(stages) == 5:
            raise Stopped
        stages.append(line)

    monkeypatch.setattr("arcmask.experiment.run.announce", stop_after_five)
    while True:
        stages.clear()
        attempts += 1
        try:
            reproduce(plan, folder)
        except Stopped:
            continue
        break
    # One inspection, two arms to tune, two to train in two seeds, and three stages in each of twelve cells.
    assert attempts == -(-(1 + 2 + 4 + 36) // 5)
    assert results(folder) == results(unbroken)


def test_the_checkpoint_of_a_tuned_arm_appears_whole(plan, tmp_path, monkeypatch):
    arm, folder = Arm(label="quick", tune=Tuning(operator="linear", fixed=True, rows=8)), tmp_path / "run"
    quick = replace(plan, arms={"quick": arm}, baseline="quick", seeds=(1,), budgets=())
    write = MDLM.save_weights

    def write_and_stop(self: MDLM, folder: Path) -> None:
        write(self, folder)
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(MDLM, "save_weights", write_and_stop)
        with pytest.raises(Stopped):
            reproduce(quick, folder)
    assert not (folder / "quick").exists()
    reproduce(quick, folder)
    assert load(folder / "quick" / "tuned").feedback.confidence.fixed is not None


def test_an_experiment_that_trains_nothing_runs_and_reports(plan, tmp_path):
    frozen = {name: arm for name, arm in plan.arms.items() if name in ("base", "base-temperature-0.9")}
    folder = reproduce(replace(plan, arms=frozen, budgets=()), tmp_path / "run")
    assert read_run(folder).missing() == []
    main(["report", str(folder)])
    assert (folder / "report" / "report.html").is_file()
    assert not list(folder.rglob("train"))


def test_bounds_of_an_older_version_are_measured_again(plan, unbroken, tmp_path):
    """They had the rows and noise of seed 0, so they cannot be compared with those of a seed."""
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    path, expected = folder / "base" / "seed-2" / "likelihood.json", bound(unbroken, "base", 2)
    path.write_text(json.dumps({"plain": expected["plain"] | {"seed": 0, "nats": 1.0}}))
    reproduce(plan, folder)
    assert bound(folder, "base", 2) == expected


def test_a_corpus_that_does_not_fit_the_base_is_refused_before_anything_is_written(plan, tmp_path):
    (tmp_path / "text").mkdir()
    for number in range(4):
        (tmp_path / "text" / f"{number}.txt").write_text("We hold these truths to be self-evident. " * 20)
    data = str(tmp_path / "data")
    prepare(PrepareConfig(corpus=str(tmp_path / "text"), out=data, tokenizer="gpt2", length=16, holdout="every:2"))
    frozen = {name: arm for name, arm in plan.arms.items() if arm.train is None}
    with pytest.raises(ArcmaskError, match="but the model knows 28"):
        reproduce(replace(plan, arms=frozen, data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_operator_is_refused_before_anything_is_written(plan, tmp_path):
    arms = plan.arms | {"x-tuned": Arm(label="x", tune=Tuning(operator="x"))}
    with pytest.raises(ArcmaskError, match="unknown operator 'x'; choose one of: linear, "):
        reproduce(replace(plan, arms=arms), tmp_path / "run")
    assert not (tmp_path / "run").exists()


TRAIN = find_experiment("quickstart").arms["none"].train
ARMS = [
    ({"temperature": 0}, "the temperature of the arm 'a' is 0, but must be a number above 0"),
    ({"temperature": math.nan}, "the temperature of the arm 'a' is nan, but must be a number above 0"),
    ({"train": TRAIN, "tune": Tuning(operator="x")}, "the arm 'a' has both train and tune; give one of them"),
]
TUNINGS = [
    ({"operator": "none"}, "the operator none has no feedback to tune; an arm without train and tune is the base"),
    ({"operator": "linear", "goal": "x"}, "unknown goal 'x'; choose one of: bound, generation"),
    ({"operator": "linear", "rows": 3}, "rows is 3, but must lie between 4 and 1,000,000"),
]


@pytest.mark.parametrize(("settings", "sentence"), ARMS)
def test_an_arm_that_cannot_be_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ArcmaskError, match=f"^{re.escape(sentence)}$"):
        Arm(label="a", **settings)


@pytest.mark.parametrize(("settings", "sentence"), TUNINGS)
def test_tuning_that_cannot_be_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ArcmaskError, match=f"^{re.escape(sentence)}$"):
        Tuning(**settings)


def test_arms_that_do_not_fit_the_plan_are_refused_in_a_sentence(plan):
    with pytest.raises(ArcmaskError, match="the arms 'base' and 'again' have the same settings; leave one of them out"):
        replace(plan, arms=plan.arms | {"again": Arm(label="again")})
    with pytest.raises(ArcmaskError, match="the arm 'a' trains sotu-tiny on data/sotu-text8-128, but the plan has "):
        replace(plan, arms=plan.arms | {"a": Arm(label="a", train=TRAIN)})
    with pytest.raises(ArcmaskError, match="unknown baseline 'x'; choose one of: base, "):
        replace(plan, baseline="x")
    with pytest.raises(ArcmaskError, match="the arms are base, none, base, but each must occur once"):
        Changes(arms=["base", "none", "base"]).apply(plan)
    with pytest.raises(ArcmaskError, match=r"spherical gives the arm spherical-0\.3, which the plan has already"):
        add_operators(plan, ["spherical"])


def test_operators_are_fitted_in_a_plan_that_trains_nothing(plan):
    frozen = Changes(arms=["base"]).apply(plan)
    assert add_operators(frozen, ["renormalized"]).arms["renormalized-tuned"].tune == Tuning(operator="renormalized")


def test_two_ranks_share_the_fits(plan, unbroken, forks, tmp_path):
    arms = ["base", "linear-tuned", "spherical-tuned"]  # either rank fits one, and saves the whole model
    (tmp_path / "plan.yaml").write_text(plan_to_yaml(Changes(arms=arms, seeds=[1]).apply(plan)))
    ends = forks.run_ranks(["reproduce", "plan.yaml", "--run", "run"], tmp_path)
    assert [end.code for end in ends] == [0, 0], ends[1].stderr
    for name in ("feedback.json", "model.safetensors", "config.json"):
        found, expected = (
            [folder / arm / "tuned" / name for arm in arms[1:]] for folder in (tmp_path / "run", unbroken)
        )
        assert [path.read_bytes() for path in found] == [path.read_bytes() for path in expected]


@pytest.mark.slow
def test_two_ranks_find_what_one_finds(plan, unbroken, tmp_path):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "--", "arcmask"]
    (tmp_path / "plan.yaml").write_text(plan_to_yaml(plan))
    words = ["reproduce", str(tmp_path / "plan.yaml"), "--run", str(tmp_path / "run")]
    subprocess.run([sys.executable, *launch, *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    one, two = (results(folder) for folder in (unbroken, tmp_path / "run"))
    assert one.keys() == two.keys()
    # Training on two ranks rounds in another order.
    frozen = [name for name in one if KINDS[name.split("/")[0]] != "trained"]
    for name in frozen:
        if Path(name).name in ("feedback.json", "model.safetensors", "samples.jsonl"):
            assert sorted(one[name].splitlines()) == sorted(two[name].splitlines()), name
