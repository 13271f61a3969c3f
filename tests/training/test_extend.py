"""A run that exists: more steps, and settings that do not change its result, continue it; others are refused."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

from arcmask.errors import ArcmaskError
from arcmask.run_folder import read_metrics
from arcmask.settings.train import COMPUTED, ON_RESUME
from arcmask.training import TrainConfig, train

TIMED = ("tokens_per_second", "memory_gb")
OTHER = {
    "data": "elsewhere",
    "init": "new:tiny",
    "operator": "linear",
    "band": (0.3, 0.7),
    "band_reading": "draw",
    "fixed_weight": 0.2,
    "curve": "cosine",
    "dropout": 0.3,
    "freeze_backbone": True,
    "precision": "bfloat16",
    "weight_decay": 0.1,
}


def tensors(run: Path, step: int) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "checkpoints" / f"step-{step:07d}" / "trainer.safetensors")


def untimed(run: Path) -> list[dict]:
    return [{key: value for key, value in line.items() if key not in TIMED} for line in read_metrics(run)]


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture
def still(config) -> TrainConfig:
    return replace(config, dropout=0.0, validate_every=0)


def test_every_setting_says_once_what_it_may_do_on_resume():
    names = [name for kind in ON_RESUME.values() for name in kind]
    assert sorted(names) == sorted(setting.name for setting in fields(TrainConfig))
    assert set(COMPUTED) <= set(names)


def test_a_run_that_is_extended_ends_with_the_bits_of_one_that_had_all_steps_from_the_start(config, tmp_path):
    train(replace(config, steps=24), tmp_path / "long")
    train(replace(config, steps=12), tmp_path / "extended")
    for steps in (18, 24):
        assert train(replace(config, steps=steps), tmp_path / "extended").name == f"step-{steps:07d}"
    assert_equal(tensors(tmp_path / "extended", 24), tensors(tmp_path / "long", 24))
    assert untimed(tmp_path / "extended") == untimed(tmp_path / "long")
    assert yaml.safe_load((tmp_path / "extended" / "config.yaml").read_text())["steps"] == 24


def test_what_was_computed_stays_when_a_run_is_extended(config, tmp_path):
    auto = replace(config, **dict.fromkeys(COMPUTED, "auto"))
    train(replace(auto, steps=40), tmp_path / "extended")
    before = yaml.safe_load((tmp_path / "extended" / "config.yaml").read_text())
    train(replace(auto, steps=60), tmp_path / "extended")
    assert yaml.safe_load((tmp_path / "extended" / "config.yaml").read_text()) == before | {"steps": 60}
    assert (before["warm_up"], before["save_every"], before["validate_every"]) == (2, 4, 4)
    numbers = {name: before[name] for name in COMPUTED}
    train(replace(auto, steps=60, **numbers), tmp_path / "long")
    assert_equal(tensors(tmp_path / "extended", 60), tensors(tmp_path / "long", 60))


def test_a_cosine_curve_is_not_extended_and_the_sentence_says_why(config, tmp_path):
    cosine = replace(config, steps=3, curve="cosine")
    train(cosine, tmp_path / "run")
    with pytest.raises(ArcmaskError, match=r"steps is 3 there and 6 here\); every rate of a cosine curve depends on"):
        train(replace(cosine, steps=6), tmp_path / "run")


def test_settings_that_do_not_change_the_result_may_differ_on_resume(config, tmp_path):
    train(replace(config, steps=12, validate_every=0), tmp_path / "unbroken")
    train(replace(config, steps=6), tmp_path / "run")
    changes = {"save_every": 2, "keep": 1, "validate_every": 4, "tracker": "tensorboard"}
    assert set(changes) == set(ON_RESUME["always"])
    train(replace(config, steps=12, **changes), tmp_path / "run")
    assert_equal(tensors(tmp_path / "run", 12), tensors(tmp_path / "unbroken", 12))
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {name: stored[name] for name in changes} == changes
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1


def test_without_dropout_micro_batches_may_differ_on_resume_and_the_result_is_equal_up_to_rounding(still, tmp_path):
    train(still, tmp_path / "unbroken")
    train(replace(still, steps=6), tmp_path / "run")
    train(replace(still, micro_batch=2, checkpoint_blocks=True), tmp_path / "run")
    expected = tensors(tmp_path / "unbroken", 12)
    for name, tensor in tensors(tmp_path / "run", 12).items():
        is_wide = tensor.dtype == torch.float64  # the confidence scalars are float32
        bounds = {"rtol": 1e-8, "atol": 1e-10} if is_wide else {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(tensor, expected[name], **bounds)


def test_with_dropout_micro_batches_and_ranks_may_not_differ(config, tmp_path, monkeypatch):
    train(replace(config, steps=3), tmp_path / "run")
    with pytest.raises(ArcmaskError, match="micro_batch is 4 there and 8 here"):
        train(replace(config, steps=6, micro_batch=8), tmp_path / "run")
    counts = tmp_path / "run" / "checkpoints" / "step-0000003" / "trainer.json"
    assert json.loads(counts.read_text())["ranks"] == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ArcmaskError, match="was trained by 1 ranks, not 2, and its dropout depends on them"):
        train(replace(config, steps=6), tmp_path / "run")


def test_a_stored_number_that_cannot_be_is_named_with_its_file(config, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(config.to_dict() | {"learning_rate": 1e15}))
    with pytest.raises(ArcmaskError, match=r"run/config\.yaml does not hold .*: learning_rate is 1000000000000000"):
        train(replace(config, learning_rate="auto"), run)


@pytest.mark.parametrize("name", ON_RESUME["never"])
def test_a_setting_that_would_change_the_result_is_refused_by_name(config, tmp_path, name):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump(config.to_dict()))
    value = getattr(config, name)
    other = OTHER[name] if name in OTHER else value / 2 if isinstance(value, float) else value + 1
    with pytest.raises(
        ArcmaskError, match=rf"has other settings \({name} is .* there and .* here\); give another name"
    ):
        train(replace(config, **{name: other}), run)
