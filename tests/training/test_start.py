"""The start of a run: what is "auto" is computed once from the model and the steps, stored, and kept."""

from dataclasses import replace

import pytest
import safetensors.torch
import torch
import yaml

from arcmask import progress
from arcmask.checkpoint import load
from arcmask.cli import main
from arcmask.data import open_prepared
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence
from arcmask.feedback.calibration import draft_entropies
from arcmask.run_folder import read_metrics
from arcmask.training import TrainConfig, train, trainer
from arcmask.training.metrics import describe_result


@pytest.fixture
def auto(config) -> TrainConfig:
    return replace(config, centre="auto", steepness="auto")


def stored(run) -> dict:
    return yaml.safe_load((run / "config.yaml").read_text())


def state(run) -> dict[str, torch.Tensor]:
    newest = max((run / "checkpoints").glob("step-*"))
    return safetensors.torch.load_file(newest / "trainer.safetensors")


def test_auto_is_the_default_and_is_stored_as_numbers_with_the_papers_mean_weight(auto, base, tmp_path, capsys):
    assert TrainConfig(data="x", init="y").centre == TrainConfig(data="x", init="y").steepness == "auto"
    train(replace(auto, steps=1), tmp_path / "run")
    settings = stored(tmp_path / "run")
    confidence = Confidence(scale=0.5, centre=settings["centre"], steepness=settings["steepness"])
    entropy = draft_entropies(load(base), open_prepared(auto.data).rows(range(300)))
    # On other rows, so only about.
    assert confidence(entropy).mean().item() == pytest.approx(0.135, abs=0.03)
    assert "and the mean weight 0.135, at 512 masked positions" in capsys.readouterr().err


def test_a_resumed_run_that_says_auto_keeps_the_stored_numbers_and_ends_with_the_same_bits(auto, tmp_path, monkeypatch):
    train(auto, tmp_path / "unbroken")
    settings = stored(tmp_path / "unbroken")
    train(replace(auto, centre=settings["centre"], steepness=settings["steepness"]), tmp_path / "numbers")
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "append_metrics", _stop_at(7))
        with pytest.raises(KeyboardInterrupt):
            train(auto, tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "calibrate", lambda *_: pytest.fail("calibrated again"))
        train(auto, tmp_path / "killed")
    assert {settings["centre"]} == {stored(tmp_path / name)["centre"] for name in ("unbroken", "numbers", "killed")}
    for other in ("numbers", "killed"):
        for name, tensor in state(tmp_path / "unbroken").items():
            assert torch.equal(state(tmp_path / other)[name], tensor), (other, name)


def _stop_at(step):
    real = trainer.append_metrics

    def append(run, record):
        real(run, record)
        if record["step"] == step:
            raise KeyboardInterrupt

    return append


def test_other_numbers_than_the_stored_ones_are_refused(auto, tmp_path):
    train(replace(auto, steps=2), tmp_path / "run")
    with pytest.raises(ArcmaskError, match=r"other settings \(centre is -.* there and -9.0 here\)"):
        train(replace(auto, steps=2, centre=-9.0), tmp_path / "run")


def test_every_arm_of_a_seed_gets_the_same_numbers(auto, tmp_path):
    for name, changes in {
        "none": {"operator": "none"},
        "linear": {"operator": "linear"},
        "fixed": {"fixed_weight": 0.3},
    }.items():
        train(replace(auto, steps=1, **changes), tmp_path / name)
    numbers = {(stored(tmp_path / name)["centre"], stored(tmp_path / name)["steepness"]) for name in ("none", "linear")}
    assert numbers == {(stored(tmp_path / "fixed")["centre"], stored(tmp_path / "fixed")["steepness"])}


@pytest.mark.parametrize(("centre", "end"), [(-0.001, "near 0"), (-30.0, "near their top")])
def test_a_run_whose_weights_are_extreme_says_so_once(config, tmp_path, capsys, centre, end):
    config = replace(config, centre=centre, steepness=20.0, confidence_learning_rate=1e-6)
    train(config, tmp_path / "run")
    assert capsys.readouterr().err.count(f"the feedback weights are all {end}") == 1


def test_weights_that_become_extreme_are_told_at_a_validation(config, tmp_path, capsys):
    config = replace(config, steepness=20.0, confidence_learning_rate=30.0, warm_up=0, ema=0.1, gate_probability=1.0)
    train(config, tmp_path / "run")
    told = [line for line in capsys.readouterr().err.splitlines() if "weights are all near" in line]
    assert [line.partition(":")[0] for line in told] in (["after step 6"], ["after step 12"])
    assert f"`arcmask train --init {tmp_path}/run` and `arcmask tune {tmp_path}/run` fit" in told[0]
    assert read_metrics(tmp_path / "run")[-1]["step"] == 12


def test_a_scale_below_the_mean_weight_is_refused_before_a_model_is_built(auto, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "build_model", None)
    with pytest.raises(ArcmaskError, match=r"the scale 0.1 cannot have the mean 0.135"):
        train(replace(auto, scale=0.1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_progress_of_a_run_shows_its_loss_and_the_end_says_what_was_reached_and_what_to_type(
    config, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(config.to_dict()))
    run = str(tmp_path / "my run")
    main(["train", "sotu-tiny-spherical", "--config", str(settings), "--run", run])
    printed = capsys.readouterr()
    assert printed.out == f"{run}/checkpoints/step-0000012\n"
    lines, records = printed.err.splitlines(), read_metrics(run)
    training = [line for line in lines if line.startswith("training: ")]
    assert len(training) == 12
    assert "validation" not in training[4]
    fed = [record["weight"] for record in records if "weight" in record]
    loss, weight = (sum(values) / len(values) for values in ([record["loss"] for record in records], fed))
    last = records[-1]
    with_feedback, without = last["validation_nll_feedback"], last["validation_nll_plain"]
    assert training[-1].partition("; ")[2] == (
        f"loss {loss:.3f}, validation {with_feedback:.4f} with feedback and {without:.4f} without, "
        f"weight {weight:.3f}, learning rate 0.001"
    )
    assert lines[-2] == (
        f"trained 12 steps; the validation loss is {with_feedback:.4f} with feedback and {without:.4f} without, "
        "in nats per token"
    )
    assert lines[-1] == f"next: arcmask sample '{run}', or arcmask report '{run}'"


def test_a_run_without_validation_says_its_training_loss():
    records = [{"step": step, "loss": float(step)} for step in range(1, 31)]
    assert describe_result(records) == (
        "trained 30 steps; the training loss is 20.500 nats per token, the mean of the last 20 steps"
    )
