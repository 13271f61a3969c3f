"""Plans: what they are made of, what a user may change, and what is refused."""

import re
from dataclasses import replace

import pytest

from arcmask.cli import main
from arcmask.errors import ArcmaskError
from arcmask.estimates.phrases import format_duration
from arcmask.experiment import reproduce
from arcmask.experiment.estimate import describe, find_costs
from arcmask.feedback import OPERATORS
from arcmask.recipes import EXPERIMENTS, find_experiment
from arcmask.settings.experiment import Changes


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_builds_and_its_parts_fit(name):
    plan = find_experiment(name)
    assert plan.recipe == name
    assert plan.baseline in plan.arms
    assert plan.data == plan.prepare.out
    assert plan.generation.length == plan.prepare.length
    for arm in plan.arms.values():
        assert arm.operator in OPERATORS
        assert plan.read_at is None or plan.read_at <= arm.train.steps


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_arms_differ_in_their_feedback_alone(name):
    arms = [vars(arm.train) for arm in find_experiment(name).arms.values() if arm.train is not None]
    feedback = {"operator", "fixed_weight", "karcher_steps", "top_k"}
    for arm in arms[1:]:
        assert {key for key in arm if arm[key] != arms[0][key]} <= feedback


def test_the_papers_experiment_is_the_papers():
    plan = find_experiment("paper")
    assert (plan.seeds, plan.budgets, plan.generation.samples) == ((1, 2, 3), (64, 128, 256, 512), 5000)
    assert (plan.generation.evaluator, plan.generation.top_p) == ("gpt2-large", 0.9)
    assert [arm.train.steps for arm in plan.arms.values()] == [7000] * 3
    assert find_experiment("paper-karcher").read_at == find_experiment("paper-topk").read_at == 1181


def test_a_seed_fixes_training_and_generation(tmp_path):
    plan = find_experiment("quickstart")
    assert plan.train("none", 7).seed == 7
    assert plan.sample("none", "checkpoint", 7, 32, tmp_path / "out").seed == 7
    assert "seed" not in plan.to_json()["arms"]["none"]["train"]


def test_changes_reach_every_part():
    changes = Changes(
        arms=["spherical-0.3"], seeds=[9], budgets=[2], samples=3, steps=5, batch_size=4, base="b", data="d", length=8
    )
    plan = replace(changes, evaluator="none").apply(find_experiment("quickstart"))
    train = plan.arms["spherical-0.3"].train
    assert (train.steps, train.batch_size, train.micro_batch, train.init, train.data) == (5, 4, 16, "b", "d")
    assert (plan.base, plan.data) == ("b", "d")
    assert (plan.seeds, plan.budgets, plan.baseline, plan.prepare) == ((9,), (2,), "spherical-0.3", None)
    assert (plan.generation.samples, plan.generation.length, plan.generation.evaluator) == (3, 8, None)
    assert Changes(budgets=[]).apply(plan).budgets == ()  # none is not the recipe's


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arms": ["x"]}, "unknown arm 'x'; choose one of: base, none, spherical-0.3, spherical-tuned"),
        ({"seeds": []}, "an experiment needs seeds, but there are none"),
        ({"seeds": [1, 1]}, "the seeds are 1, 1, but each must occur once"),
        ({"seeds": [-1]}, "seeds is -1, but must lie between 0 and"),
        ({"budgets": [0]}, "budgets is 0, but must lie between 1 and"),
        ({"samples": 0}, "samples is 0, but must lie between 1 and"),
        ({"steps": 0}, "steps is 0, but must lie between 1 and"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(ArcmaskError, match=re.escape(sentence)):
        Changes(**changes).apply(find_experiment("quickstart"))


def test_the_protocol_stays_the_papers_only_while_its_numbers_compare():
    paper = find_experiment("paper")
    assert Changes(seeds=[4], budgets=[64], arms=["none"]).apply(paper).protocol == "paper"
    assert Changes(steps=10).apply(paper).protocol is None
    assert Changes(evaluator="gpt2").apply(paper).protocol is None
    assert Changes(batch_size=256).apply(paper).protocol is None
    same = Changes(steps=7000, batch_size=512, length=1024, evaluator="gpt2-large", base=paper.base)
    assert same.apply(paper) == paper


KNOBS = {
    "micro_batch": 4,
    "sampling_batch": 64,
    "checkpoint_blocks": True,
    "compile_blocks": True,
    "precision": "bfloat16",
    "evaluator_batch": 4096,
    "evaluator_precision": "bfloat16",
}


def test_the_knobs_of_training_reach_the_training_of_the_base():
    plan = Changes(**KNOBS).apply(find_experiment("paper-rehearsal"))
    knobs = ("micro_batch", "precision", "checkpoint_blocks", "compile_blocks")
    assert [getattr(plan.pretrain, name) for name in knobs] == [4, "bfloat16", True, True]


def test_the_band_of_sampling_can_be_set(tmp_path):
    plan = find_experiment("paper")
    wide = replace(plan, generation=replace(plan.generation, band=(0.0, 1.0)))
    bands = {arm: wide.sample(arm, "checkpoint", 1, 64, tmp_path).band for arm in wide.arms}
    assert bands == {"none": None, "linear-learned": (0.0, 1.0), "spherical-learned": (0.0, 1.0)}
    assert wide.to_json()["band"] == [0.0, 1.0]
    assert "band" not in plan.to_json()
    with pytest.raises(ArcmaskError, match="must be two rising numbers between 0 and 1"):
        replace(plan.generation, band=(0.8, 0.2))


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_a_knob_of_speed_and_memory_leaves_the_protocol_and_all_else_alone(name):
    paper = find_experiment("paper")
    plan = Changes(**{name: KNOBS[name]}).apply(paper)
    assert plan.protocol == "paper"
    assert plan != paper, "it reaches the plan"
    ours, theirs = (set(map(repr, flat(p.to_json()))) for p in (plan, paper))
    assert {entry.split("'")[-2] for entry in ours - theirs} <= {name}


def flat(value: object, path: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    if isinstance(value, dict):
        return [entry for key, inner in value.items() for entry in flat(inner, (*path, str(key)))]
    return [(value, *path)]


def test_all_knobs_together_reach_training_sampling_and_scoring(tmp_path):
    plan = Changes(**KNOBS).apply(find_experiment("paper"))
    for arm in plan.arms:
        train, sampling = plan.train(arm, 1), plan.sample(arm, "checkpoint", 1, 64, tmp_path)
        assert (train.batch_size, train.micro_batch, train.precision) == (512, 4, "bfloat16")
        assert train.checkpoint_blocks
        assert train.compile_blocks
        assert (sampling.batch_size, sampling.precision) == (64, "bfloat16")
    assert (plan.generation.evaluator_batch, plan.generation.evaluator_precision) == (4096, "bfloat16")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"micro_batch": 48}, "a rank's 512 sequences cannot be cut evenly into micro-batches of 48"),
        ({"batch_size": 24}, "a rank's 24 sequences cannot be cut evenly into micro-batches of 16"),
        ({"micro_batch": 0}, "micro_batch is 0, but must lie between 1 and"),
        ({"sampling_batch": 0}, "sampling_batch is 0, but must lie between 1 and"),
        ({"evaluator_batch": 0}, "evaluator_batch is 0, but must lie between 1 and"),
        ({"evaluator_precision": "half"}, "unknown evaluator_precision 'half'; choose one of: auto, bfloat16, float32"),
    ],
)
def test_a_knob_that_does_not_fit_is_a_sentence_before_anything_is_opened(changes, sentence, tmp_path):
    with pytest.raises(ArcmaskError, match=re.escape(sentence)):
        reproduce(Changes(**changes).apply(find_experiment("paper")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_experiment_lists_the_known_ones():
    with pytest.raises(ArcmaskError, match="unknown experiment 'x'; choose one of: antibody, paper, paper-karcher, "):
        find_experiment("x")


def test_the_papers_dry_run_says_what_it_takes_without_a_download():
    said = describe(find_experiment("paper"), card="A100")
    # 9 x 7,000 + 4 x 1,181 steps of 512 x 1,024 tokens
    assert "13 training runs, 35,506,880,512 tokens in all" in said
    assert "5,000 samples at each of 64, 128, 256, 512 denoising steps, 180,000 in all" in said
    assert re.search(r"time: about \d+\.\d days on A100, from its data sheet and counted operations: training ", said)
    assert "checkpoints 44.1 GB" in said  # 13 x 20 bytes x 169.6M
    assert "data 18.1 GB" in said
    assert re.search(r"memory: about \d+\.\d GB of 80\.0 GB per process: training ", said)
    assert "to fetch: Skylion007/openwebtext" in said


def seconds(said: str) -> float:
    """Read the time off the words of a dry run."""
    number, unit = re.search(r"time: about ([\d.,]+) (s|min|hours|days) on", said).groups()
    return float(number.replace(",", "")) * {"s": 1, "min": 60, "hours": 3600, "days": 86400}[unit]


def test_world_size_card_and_precision_count(monkeypatch):
    paper = find_experiment("paper")
    alone = seconds(describe(paper, card="A100"))
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "4")
        assert seconds(describe(paper, card="A100")) == pytest.approx(alone / 4, rel=0.05)
        assert "on 4 x H100" in describe(paper, card="H100")
    assert seconds(describe(paper, card="H100")) < alone < seconds(describe(paper, card="A6000"))
    assert seconds(describe(Changes(precision="float32").apply(paper), card="A100")) > 3 * alone


def test_a_card_that_is_too_small_is_named_with_the_way_through():
    large = Changes(micro_batch=64).apply(find_experiment("paper"))
    assert "24.0 GB per process; too much: give a smaller --micro_batch, or --checkpoint_blocks true" in describe(
        large, card="RTX4090"
    )
    assert "too much" not in describe(find_experiment("paper"), card="RTX4090")
    assert "too much" not in describe(Changes(checkpoint_blocks=True).apply(large), card="RTX4090")


@pytest.mark.parametrize("words", [["reproduce", "paper"], ["train", "owt-continue-spherical"]])
def test_a_card_is_known_and_only_for_a_dry_run(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, sentence in {
        ("--card", "A6", "--dry-run"): "unknown card 'A6'; choose one of: A100, A6000, H100, RTX4090",
        ("--card", "A100"): "--card is A100, but it is for --dry-run; leave it out",
    }.items():
        with pytest.raises(SystemExit, match="2"):
            main([*words, *options])
        assert capsys.readouterr().err == f"arcmask: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_is_nowhere_is_said_to_be_unknown():
    said = describe(Changes(base="somebody/model", seeds=[1]).apply(find_experiment("paper")))
    assert "not estimated, since the layout of somebody/model" in said


def test_a_dry_run_counts_arms_that_are_not_trained(base, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the demo has not been run
    changes = Changes(base=str(base), data=corpus, length=16, arms=["base", "spherical-tuned", "none"])
    said = describe(changes.apply(find_experiment("quickstart")))
    assert "\n  base: base, not trained\n" in said
    assert "tuned, not trained, fitted to 64 rows\n" in said
    assert "5 training runs, 25,600 tokens in all" in said  # 5 x 20 x 16 x 16
    assert "24 samples at each of 32 denoising steps, 360 in all" in said  # 3 arms x 5 seeds x 24
    frozen = describe(replace(changes, arms=["base"]).apply(find_experiment("quickstart")))
    assert "0 training runs, 0 tokens in all" in frozen
    assert "per process: sampling " in frozen


def test_tuning_is_a_part_of_the_estimate():
    plan = find_experiment("quickstart")
    costs = find_costs(plan, "A100")
    frozen = replace(costs, plan=Changes(arms=["base"]).apply(plan))
    both = replace(costs, plan=Changes(arms=["base", "spherical-tuned"]).apply(plan))
    tuning = plan.arms["spherical-tuned"].tune
    assert costs.tuning(tuning) > 1.5 * costs.tuning(replace(tuning, fixed=True)) > 0
    assert (frozen.by_kind()["tuning"], both.by_kind()["tuning"]) == (0, costs.tuning(tuning))


def test_durations_are_in_units_that_are_easy_to_read():
    assert [format_duration(x) for x in (5, 300, 9000, 9e5)] == ["5 s", "5 min", "2.5 hours", "10.4 days"]


def test_a_plan_that_only_trains_is_stored_as_before_there_were_other_arms():
    stored = find_experiment("quickstart-operators").to_json()
    assert set(stored) == {
        "recipe", "title", "protocol", "baseline", "base", "data", "likelihood_rows", "read_at", "arms", "seeds",
        "budgets", "sampling", "samples", "length", "evaluator", "start", "features",
    }  # fmt: skip
    assert all(set(arm) == {"label", "train", "baseline"} for arm in stored["arms"].values())
    assert (stored["base"], stored["data"]) == ("sotu-tiny", "data/sotu-text8-128")
