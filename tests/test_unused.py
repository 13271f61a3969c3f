"""An option that has no effect beside the others is refused in one sentence, on the command line as in Python."""

import re
from dataclasses import fields, is_dataclass

import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.checkpoint import load
from arcmask.cli import COMMANDS, main
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.parsing import settings_of
from arcmask.recipes import find_experiment
from arcmask.settings.evaluate import EvaluateConfig
from arcmask.settings.experiment import Changes
from arcmask.settings.explore import ExploreConfig
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.sample import SampleConfig
from arcmask.settings.train import TrainConfig
from arcmask.settings.tune import TuneConfig

TRAIN = "train --data d --init new:tiny"
LINES = [
    (
        f"{TRAIN} --operator none --fixed_weight 0.3",
        "fixed_weight has no effect, since the operator none feeds nothing",
    ),
    (f"{TRAIN} --operator none --centre -3", "centre has no effect, since the operator none feeds nothing back"),
    ("train sotu-tiny-none --top-k 5", "top_k has no effect, since the operator none feeds nothing back; leave it out"),
    (f"{TRAIN} --fixed_weight 0.3 --scale 0.4", "scale has no effect, since the weight is fixed at 0.3"),
    (f"{TRAIN} --freeze_backbone true --learning_rate 1", "learning_rate has no effect, since the backbone is frozen"),
    (f"{TRAIN} --validate_every 0 --validation_rows 9", "validation_rows has no effect, since validate_every is 0"),
    (f"{TRAIN} --operator linear --karcher_steps 5", "karcher_steps has no effect, since the operator linear has no"),
    ("sample m --feedback none --band 0.1 0.9", "band has no effect, since there is no feedback"),
    ("sample m --drop_crossing true", "drop_crossing has no effect, since top_p is 1"),
    ("explore m --feedback none --band 0.1 0.9", "band has no effect, since no arm has feedback"),
    ("explore m --drop-crossing=true", "drop_crossing has no effect, since top_p is 1"),
    ("tune m --data d --out o --samples 9", "samples has no effect, since the goal bound draws no samples"),
    ("tune m --data d --out o --goal generation --fixed", "fixed has no effect, since the goal generation always"),
    ("tune m --data d --out o --goal generation --rows 9", "rows has no effect, since the goal generation measures"),
    ("evaluate s --rows 9", "rows has no effect, since there is no checkpoint"),
    ("evaluate s --features gpt2", "features has no effect, since MAUVE needs a reference"),
    ("evaluate s --evaluator none --context 99", "context has no effect, since evaluator and features are none"),
    ("evaluate --checkpoint m --data d --reference r", "reference has no effect, since there are no samples to score"),
    ("inspect m --only norms --generate", "generate has no effect, since it is for generation alone"),
    ("inspect m --only norms --operators linear", "operators has no effect, since it is for gain and generation alone"),
    ("inspect m --steps 9", "steps has no effect, since it is for generation alone"),
    ("prepare sotu o --text_key body", "text_key has no effect, since sotu has no keys or columns"),
    ("prepare sotu o --verify --length 9", "length has no effect, since verify prepares nothing"),
    ("reproduce quickstart --arms base --steps 9", "steps has no effect, since no arm is trained"),
    ("reproduce quickstart --budgets --samples 9", "samples has no effect, since without budgets nothing is sampled"),
    ("reproduce quickstart --evaluator_batch 9", "evaluator_batch has no effect, since there is no evaluator"),
    ("convert sotu-tiny o --weights raw", "weights is raw, but only a Lightning checkpoint (.ckpt) has two kinds"),
]


@pytest.mark.parametrize(("line", "sentence"), LINES)
def test_an_option_without_effect_is_refused(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"arcmask: {sentence}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "tune m --data d --out o --evaluator none",
        "sample m --feedback none --reuse true",  # the samples are those without it
        "evaluate --checkpoint m --data d --evaluator none",
        "train sotu-tiny-none --data d --validate_every 0",  # the recipe has validation rows and a centre
    ],
)
def test_what_is_off_anyway_or_set_by_a_recipe_is_not_refused(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit):  # there is no data, and no model
        main(line.split())
    assert "has no effect" not in capsys.readouterr().err


EVERYTHING_OFF = {
    "train": [
        TrainConfig(data="d", init="new:tiny", operator="none", validate_every=0),
        TrainConfig(data="d", init="new:tiny", freeze_backbone=True, validation_rows=0),
        TrainConfig(data="d", init="new:tiny", fixed_weight=0.1),
    ],
    "sample": [SampleConfig(checkpoint="m", feedback="none")],
    "explore": [ExploreConfig(sample=SampleConfig(checkpoint="m"), feedback=("none",))],
    "tune": [TuneConfig(checkpoint="m", data="d", out="o", goal=goal) for goal in ("bound", "generation")],
    "evaluate": [EvaluateConfig(checkpoint="m", data="d"), EvaluateConfig(samples=("s",), evaluator="none")],
    "inspect": [InspectConfig(checkpoint="m", only=("cost",))],
    "prepare": [PrepareConfig(corpus="sotu", out="o", verify=verify) for verify in (False, True)],
}


@pytest.mark.parametrize("command", sorted(EVERYTHING_OFF))
def test_what_is_called_unused_are_settings_of_the_command(command):
    names = {setting.name for _, setting in settings_of(COMMANDS[command].settings)}
    for config in EVERYTHING_OFF[command]:
        assert config.unused(), "the case switches something off"
        assert config.unused().keys() <= names


def test_every_command_with_options_that_depend_on_each_other_is_listed_here():
    kinds = [command.settings for command in COMMANDS.values()]
    kinds += [one.type for kind in kinds for one in fields(kind) if is_dataclass(one.type)]
    with_rules = {kind for kind in kinds if hasattr(kind, "unused")}
    assert with_rules == {type(config) for configs in EVERYTHING_OFF.values() for config in configs}


def test_keywords_without_effect_are_refused_in_python(tmp_path):
    model = small_mdlm()
    rows = torch.arange(64).reshape(4, 16) % 22
    with pytest.raises(ArcmaskError, match="scale has no effect, since the weight is fixed at"):
        arcmask.train(model, rows, tmp_path / "run", fixed_weight=0.2, scale=0.3)
    with pytest.raises(ArcmaskError, match="karcher_steps has no effect, since the operator linear has no Karcher"):
        arcmask.train(model, rows, tmp_path / "run", operator="linear", karcher_steps=4)
    with pytest.raises(ArcmaskError, match="gain_tokens has no effect"):
        arcmask.inspect(model, rows, only=["norms"], gain_tokens=9)
    with pytest.raises(ArcmaskError, match="samples has no effect, since the goal bound draws no samples"):
        arcmask.tune(model, rows, samples=9)
    with pytest.raises(ArcmaskError, match="band has no effect, since there is no feedback"):
        arcmask.sample(model, length=4, steps=1, feedback=None, band=(0.1, 0.9))
    with pytest.raises(ArcmaskError, match="weights is raw, but only a Lightning checkpoint"):
        load("sotu-tiny", weights="raw")
    for options in ({"bidirectional": True}, {"shift": True}, {"bidirectional": True, "mask_token": "<mask>"}):
        with pytest.raises(ArcmaskError, match="has no effect, since sotu-tiny is a Diffusion Transformer"):
            load("sotu-tiny", **options)
    assert not list(tmp_path.iterdir())


def test_another_operator_than_the_checkpoints_is_refused():
    model, rows = small_mdlm(), torch.arange(64).reshape(4, 16) % 22
    model.feedback = SoftMask("linear", confidence=Confidence(fixed=0.2))
    with pytest.raises(ArcmaskError, match=re.escape("operator is spherical, but the feedback of MDLM is linear")):
        arcmask.evaluate(checkpoint=model, data=rows, operator="spherical")
    assert arcmask.evaluate(checkpoint=model, data=rows, operator="linear")["likelihood"]["two_pass"]


def test_another_start_than_the_recipes_has_its_weights_fitted():
    """A centre belongs to a model: that of a recipe is for the start of the recipe alone."""
    plan = find_experiment("quickstart-long")
    assert {arm.train.centre for arm in plan.arms.values() if arm.train} == {-1.5}
    changed = Changes(base="mine").apply(plan)
    assert {(arm.train.centre, arm.train.steepness) for arm in changed.arms.values() if arm.train} == {("auto", "auto")}
    assert Changes(base=plan.base, seeds=[9]).apply(plan).arms == plan.arms


@pytest.mark.parametrize(
    ("options", "centre"),
    [
        ("", "-1.5"),
        ("--init sotu-tiny", "-1.5"),
        ("--init mine", "auto"),
        ("--init=mine", "auto"),
        ("--init mine --centre -1.5", "-1.5"),
    ],
)
def test_so_has_that_of_train(options, centre, capsys):
    with pytest.raises(SystemExit):
        main(["train", "sotu-tiny-linear", *options.split(), "--print-config"])
    assert f"\ncentre: {centre}\n" in capsys.readouterr().out
