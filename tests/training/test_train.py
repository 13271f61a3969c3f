"""Training in one process: what a step does, what it writes, and what stops it."""

import errno
import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import safetensors.torch
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from scipy.stats import binomtest

from arcmask.checkpoint import load
from arcmask.data import PrepareConfig, TensorRows, open_prepared, prepare
from arcmask.errors import ArcmaskError
from arcmask.feedback import Gate
from arcmask.training import TrainConfig, state, train, trainer
from arcmask.training.dry_run import describe_training
from arcmask.training.metrics import Sums
from arcmask.training.optimiser import Average, rate


def metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_learns_and_writes_all_it_should(config, tmp_path):
    config = replace(config, steps=60, learning_rate=3e-3, validate_every=20)
    last = train(config, tmp_path / "run")
    records = metrics(tmp_path / "run")
    assert [record["step"] for record in records] == list(range(1, 61))
    assert last.name == "step-0000060"
    assert sorted(path.name for path in last.parent.iterdir()) == ["step-0000057", "step-0000060"]
    validations = [record["validation_nll_plain"] for record in records if "validation_nll_plain" in record]
    assert validations[-1] < validations[0]
    fed = [record for record in records if record["feedback"]]
    assert {"weight", "weight_spread", "angle", "euclidean_angle", "scale", "centre", "steepness"} <= set(fed[0])
    assert {"loss", "nll", "perplexity", "gradient_norm", "tokens_per_second", "memory_gb"} <= set(records[0])
    assert "weight" not in next(record for record in records if not record["feedback"])
    model = load(tmp_path / "run")
    assert model.feedback.operator == "spherical"
    assert model.tokenizer.name == "text8"


def test_a_step_records_the_epoch_that_its_first_row_belongs_to(config, tmp_path):
    rows = TensorRows(open_prepared(config.data).rows(range(20)), mask_id=27)
    train(replace(config, operator="none", steps=6, validate_every=0), tmp_path / "run", corpus=rows)
    assert [record["epoch"] for record in metrics(tmp_path / "run")] == [0, 0, 0, 1, 1, 2]  # 20 rows, 8 at a time


def test_gates_are_the_seeds_and_every_arm_shares_them(config, tmp_path):
    for operator in ("none", "linear", "spherical"):
        train(replace(config, operator=operator, steps=6, validate_every=0), tmp_path / operator)
    expected = [Gate().draw(config.seed, step, 8, 16).feedback for step in range(6)]
    masked = [int(Gate().draw(config.seed, step, 8, 16).masked.sum()) for step in range(6)]
    for operator in ("none", "linear", "spherical"):
        assert [record["feedback"] for record in metrics(tmp_path / operator)] == expected
        assert [record["masked"] for record in metrics(tmp_path / operator)] == masked
    opened = sum(Gate().draw(config.seed, step, 2, 1).feedback for step in range(2000))
    assert binomtest(opened, 2000, 0.5).pvalue > 1e-3


def test_without_feedback_the_scalars_are_not_touched_not_even_by_momentum(config, tmp_path):
    train(replace(config, steps=12, validate_every=0), tmp_path / "run")
    records = metrics(tmp_path / "run")
    for before, record in pairwise(records):
        same = all(before[name] == record[name] for name in ("scale", "centre", "steepness"))
        assert same != record["feedback"]
    counts = json.loads((tmp_path / "run" / "checkpoints" / "step-0000012" / "trainer.json").read_text())
    fed = sum(record["feedback"] for record in records)
    steps = {name: n for name, n in counts["optimiser_steps"].items() if name.startswith("feedback")}
    assert set(steps.values()) == {fed}


def test_micro_batches_add_up_to_the_batch(config, tmp_path, base):
    still = json.loads((base / "config.json").read_text())
    assert still["dropout"] == 0.1
    for size in (2, 8):
        train(replace(config, micro_batch=size, dropout=0.0, validate_every=0), tmp_path / str(size))
    first, second = (
        safetensors.torch.load_file(tmp_path / n / "checkpoints/step-0000012/trainer.safetensors") for n in "28"
    )
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-8, atol=1e-10, msg=name)


def test_micro_batches_take_the_rows_in_turn(config, tmp_path, monkeypatch):
    times = []
    forward = trainer.TwoPass.forward

    def noted(self, rows, time, masked, **options):
        if self.training:
            times.append(time)
        return forward(self, rows, time, masked, **options)

    monkeypatch.setattr(trainer.TwoPass, "forward", noted)
    train(replace(config, micro_batch=2, steps=1, validate_every=0), tmp_path / "run")
    expected = Gate().draw(config.seed, 0, 8, 16).time
    assert [part.tolist() for part in times] == [expected[[first, first + 4]].tolist() for first in range(4)]


def test_a_checkpoint_keeps_the_band_of_its_training(config, tmp_path):
    train(replace(config, band=(0.1, 0.7), steps=1, validate_every=0), tmp_path / "run")
    assert load(tmp_path / "run").feedback.band == (0.1, 0.7)


def test_what_is_saved_are_the_averaged_weights(config, tmp_path):
    last = train(replace(config, validate_every=0), tmp_path / "run")
    trainer = safetensors.torch.load_file(last / "trainer.safetensors")
    model = load(last)
    name = "backbone.blocks.0.mlp.0.weight"
    assert torch.equal(model.get_parameter(name), trainer[f"average.denoiser.{name}"])
    assert not torch.equal(model.get_parameter(name), trainer[f"raw.denoiser.{name}"])
    raw = model.feedback.confidence.raw_scale.item()
    assert raw == pytest.approx(trainer["average.feedback.confidence.raw_scale"].item())


def test_a_frozen_backbone_stays_as_it_is(config, tmp_path, base):
    config = replace(config, freeze_backbone=True, gate_probability=1.0, validate_every=0)
    model = load(train(config, tmp_path / "run"))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), load(base).parameters(), strict=True))
    assert metrics(tmp_path / "run")[-1]["scale"] != metrics(tmp_path / "run")[0]["scale"]


def test_checkpointed_blocks_give_the_same_weights(config, tmp_path):
    for name, flag in (("plain", False), ("twice", True)):
        train(replace(config, checkpoint_blocks=flag, validate_every=0, steps=4), tmp_path / name)
    first, second = (load(tmp_path / name) for name in ("plain", "twice"))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_bfloat16_products_leave_float32_weights(config, tmp_path, base):
    model = load(base).float()
    model.save_pretrained(tmp_path / "single")
    config = replace(config, init=str(tmp_path / "single"), precision="bfloat16", steps=4, validate_every=4)
    last = train(config, tmp_path / "run")
    assert {tensor.dtype for tensor in safetensors.torch.load_file(last / "trainer.safetensors").values()} == {
        torch.float32
    }
    assert all(record["loss"] > 0 for record in metrics(tmp_path / "run"))


def test_the_precision_is_ours_whatever_accelerate_has_stored(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        assert trainer.connect().mixed_precision == "no"
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_float64_leaves_float32_weights_and_resumes_to_the_bit(config, tmp_path, base):
    load(base).float().save_pretrained(tmp_path / "single")
    config = replace(config, init=str(tmp_path / "single"), precision="float64", gate_probability=1.0, save_every=1)
    for name, parts in (("whole", (4,)), ("parts", (2, 4))):
        for steps in parts:
            last = train(replace(config, steps=steps, validate_every=0), tmp_path / name)
    states = [safetensors.torch.load_file(tmp_path / name / "checkpoints" / last.name / "trainer.safetensors")
              for name in ("whole", "parts")]  # fmt: skip
    assert {tensor.dtype for tensor in states[0].values()} == {torch.float64}
    torch.testing.assert_close(*states, rtol=0, atol=0)
    model = load(last)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    name = "backbone.blocks.0.mlp.0.weight"
    assert torch.equal(model.get_parameter(name), states[0][f"average.denoiser.{name}"].float())


def test_a_model_from_scratch_fits_the_data(config, tmp_path):
    config = replace(config, init="new:tiny", steps=1, validate_every=0, operator="none")
    assert load(train(config, tmp_path / "run")).config.vocab_size == 28


def test_the_learning_rate_follows_its_curve(config):
    config = replace(config, warm_up=4, steps=24)
    assert [rate(config, step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    cosine = replace(config, curve="cosine")
    assert rate(cosine, 14) == pytest.approx(0.5)
    assert rate(cosine, 23) < 0.02


def test_the_average_is_the_formulas_and_a_swap_undoes_itself():
    parameters = {"x": torch.zeros(3)}
    average = Average(parameters, 0.5)
    expected = torch.zeros(3)
    for step in range(1, 6):
        parameters["x"] += 1
        average.update(parameters)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * parameters["x"]
    torch.testing.assert_close(average.shadow["x"], expected)
    average.swap(parameters)
    torch.testing.assert_close(parameters["x"], expected)
    average.swap(parameters)
    assert torch.equal(parameters["x"], torch.full((3,), 5.0))


def test_a_non_finite_loss_stops_the_run_and_names_the_last_good_checkpoint(config, tmp_path, monkeypatch):
    real = Sums.of

    def broken(found):
        sums = real(found)
        broken.calls += 1
        if broken.calls == 2 * 5:  # two micro-batches a step
            sums[0] = float("nan")
        return sums

    broken.calls = 0
    monkeypatch.setattr(Sums, "of", staticmethod(broken))
    with pytest.raises(ArcmaskError, match=r"not finite at step 5 on rank 0; .*step-0000003"):
        train(config, tmp_path / "run")


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so(config, tmp_path, monkeypatch):
    real = state.safetensors.torch.save_file

    def full(tensors, path):
        if "step-0000006" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(tensors, path)

    monkeypatch.setattr(state.safetensors.torch, "save_file", full)
    with pytest.raises(ArcmaskError, match=r"step 6 could not be written: the disk is full; .*step-0000003 is kept"):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    assert train(config, tmp_path / "run").name == "step-0000012"


def test_a_tracker_that_fails_is_dropped_and_training_goes_on(config, tmp_path, monkeypatch):
    def gone(*_, **__):
        raise ConnectionError("the server went away")

    monkeypatch.setattr(Accelerator, "log", gone)
    with pytest.warns(UserWarning, match="the tracker failed and is no longer used; .* .the server went away"):
        train(replace(config, tracker="tensorboard", steps=3, validate_every=0), tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == 3


def test_a_changed_setting_is_refused_with_the_difference(config, tmp_path):
    train(replace(config, steps=3, validate_every=0), tmp_path / "run")
    with pytest.raises(
        ArcmaskError, match=r"has other settings .steps is 3 there and 2 here; seed is 1 there and 2 here"
    ):
        train(replace(config, steps=2, seed=2, validate_every=0), tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "no/such/data"}, "no/such/data"),
        ({"operator": "spheric"}, "unknown operator 'spheric'"),
        ({"init": "new:huge"}, "unknown model size 'huge'"),
        ({"init": "no.ckpt"}, "there is no file no.ckpt"),
        ({"micro_batch": 3}, "8 sequences cannot be cut evenly into micro-batches of 3"),
    ],
)
def test_a_wrong_run_dies_before_a_model_is_built(config, tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(trainer, "build_model", None)
    with pytest.raises(ArcmaskError, match=message):
        train(replace(config, **change), tmp_path / "run")


def test_validation_without_held_out_rows_is_missed_before_a_model_is_built(config, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("the people of the united states " * 50)
    data = str(tmp_path / "data")
    prepare(PrepareConfig(corpus=str(tmp_path / "text.txt"), out=data, tokenizer="text8", length=16, holdout="none"))
    monkeypatch.setattr(trainer, "build_model", None)
    with pytest.raises(ArcmaskError, match=r"has no held-out rows, but the run validates every 6 steps"):
        train(replace(config, data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_dry_run_describes_the_run_and_writes_nothing(config, tmp_path):
    said = describe_training(replace(config, precision="float32", init="new:tiny"), tmp_path / "run")
    assert "12 steps of 8 x 16 tokens, 1,536 in all" in said
    assert not (tmp_path / "run").exists()


def test_ranks_that_cannot_share_a_batch_are_refused(config, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ArcmaskError, match="the batch of 8 cannot be shared evenly by 3 ranks"):
        train(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0, but must lie between 1 and 1,000,000,000"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"ema": 1.0}, r"ema is 1.0, but must lie in \[0, 1\)"),
        ({"freeze_backbone": True, "operator": "none"}, "there is nothing to train"),
    ],
)
def test_settings_out_of_range_are_an_error(change, message):
    with pytest.raises(ArcmaskError, match=message):
        TrainConfig(**{"data": "x", "init": "y", **change})
