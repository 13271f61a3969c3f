"""Folders in the released layout: strict going in, exact coming out, whole or not there."""

import errno
import json
import os
import subprocess
import sys

import pytest
import safetensors.torch
import torch
from models import small_mdlm, some_tokens
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM

import arcmask
from arcmask import files
from arcmask.checkpoint import convert, load, load_for_use, save
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.model import MDLM, Wrapped, size_config
from arcmask.run_folder import newest_checkpoint


@pytest.fixture
def folder(tmp_path):
    """A saved model in the released layout, as if someone else had written it."""
    model = small_mdlm()
    path = tmp_path / "released"
    path.mkdir()
    safetensors.torch.save_file(model.state_dict(), path / "model.safetensors")
    config = {"model_type": "mdlm", "vocab_size": 23, "model_length": 16, "hidden_dim": 32, "cond_dim": 8}
    config |= {"n_blocks": 3, "n_heads": 4, "dropout": 0.1, "time_conditioning": False}
    config |= {"auto_map": {"AutoModelForMaskedLM": "modeling_mdlm.MDLM"}, "return_dict": True}
    (path / "config.json").write_text(json.dumps(config))
    return path


def change_weights(folder, change):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, folder / "model.safetensors")


def openers():
    return [load, AutoModelForMaskedLM.from_pretrained]


def test_what_commands_open_goes_to_the_device_with_its_feedback(folder, tmp_path, monkeypatch):
    model = load(folder)
    model.feedback = SoftMask("spherical", confidence=Confidence())
    save(model, tmp_path / "fed")
    monkeypatch.setattr("arcmask.checkpoint.loading.best_device", lambda: torch.device("meta"))
    found = load_for_use(tmp_path / "fed")
    assert {p.device.type for m in (found, found.feedback) for p in m.parameters()} == {"meta"}


@pytest.mark.parametrize("opener", openers())
def test_a_released_folder_opens_with_equal_logits(folder, opener):
    model = opener(folder)
    assert isinstance(model, MDLM)
    assert not model.training
    assert model.mask_id == 22
    torch.testing.assert_close(model(some_tokens()).logits, small_mdlm()(some_tokens()).logits)


def test_transformers_opens_it_after_importing_the_model_alone(folder):
    code = (
        "import arcmask.model\nfrom transformers import AutoModelForMaskedLM\n"
        f"print(type(AutoModelForMaskedLM.from_pretrained({str(folder)!r})).__name__)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "MDLM", result.stderr


@pytest.mark.parametrize("opener", openers())
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("backbone.blocks.1.norm1.weight"), r"missing backbone\.blocks\.1\.norm1\.weight"),
        (lambda w: w.update({"backbone.extra": torch.ones(1)}), r"unexpected backbone\.extra"),
        (
            lambda w: w.update({"backbone.blocks.0.norm2.weight": torch.ones(31)}),
            r"backbone\.blocks\.0\.norm2\.weight is \(31,\), not \(32,\)",
        ),
    ],
)
def test_a_key_or_shape_that_does_not_fit_is_named(folder, opener, change, message):
    change_weights(folder, change)
    with pytest.raises(ArcmaskError, match=message):
        opener(folder)


@pytest.mark.parametrize("opener", openers())
def test_time_conditioning_is_refused(folder, opener):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"time_conditioning": True}))
    with pytest.raises(ArcmaskError, match="time_conditioning is true"):
        opener(folder)


def full_model() -> MDLM:
    """With feedback and a tokenizer, as after training."""
    model = small_mdlm(vocab_size=28)
    confidence = Confidence(scale=0.4, centre=-1.7, steepness=3.3)
    model.feedback = SoftMask("renormalized", top_k=2, karcher_steps=1, confidence=confidence)
    model.tokenizer = open_tokenizer("text8")
    return model


def test_what_is_saved_is_what_is_loaded(tmp_path):
    model = full_model()
    model.save_pretrained(tmp_path / "out")
    again = load(tmp_path / "out")
    tokens = some_tokens(vocab_size=28)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits)
    assert again.feedback.settings() == model.feedback.settings()
    assert again.tokenizer.encode("a cat") == model.tokenizer.encode("a cat")
    assert again.tokenizer.decode(again.tokenizer.encode("a cat")) == "a cat"


def test_the_band_of_the_training_is_kept_and_older_checkpoints_have_the_papers(tmp_path):
    model = full_model()
    model.feedback.band = (0.3, 0.9)
    save(model, tmp_path)
    assert load(tmp_path).feedback.band == (0.3, 0.9)
    settings = json.loads((tmp_path / "feedback.json").read_text())
    del settings["band"]
    (tmp_path / "feedback.json").write_text(json.dumps(settings))
    assert load(tmp_path).feedback.band == (0.2, 0.8)
    for band in ([0.9, 0.3], [0.3], 0.3, "ab", None):
        (tmp_path / "feedback.json").write_text(json.dumps(settings | {"band": band}))
        with pytest.raises(ArcmaskError, match=r"the band is|feedback\.json does not describe feedback"):
            load(tmp_path)


def test_the_saved_layout_is_the_released_one(tmp_path):
    model = full_model()
    save(model, tmp_path / "out")
    weights = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    assert set(weights) == set(small_mdlm(vocab_size=28).state_dict())
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    released = {"model_type": "mdlm", "vocab_size": 28, "model_length": 16, "hidden_dim": 32, "cond_dim": 8}
    released |= {"n_blocks": 3, "n_heads": 4, "dropout": 0.0, "time_conditioning": False}
    assert released.items() <= config.items()
    assert isinstance(AutoModelForMaskedLM.from_pretrained(tmp_path / "out"), MDLM)


def test_a_fixed_weight_survives_too(tmp_path):
    model = small_mdlm()
    model.feedback = SoftMask("linear", confidence=Confidence(fixed=0.3))
    save(model, tmp_path / "out")
    assert load(tmp_path / "out").feedback.confidence.fixed == 0.3


def test_bfloat16_weights_stay_bfloat16(tmp_path):
    save(small_mdlm().bfloat16(), tmp_path / "out")
    model = load(tmp_path / "out")
    assert model.table.dtype == torch.bfloat16
    assert model(some_tokens()).logits.isfinite().all()


def test_feedback_and_tokenizer_are_no_part_of_the_state():
    model = full_model()
    assert set(model.state_dict()) == set(small_mdlm(vocab_size=28).state_dict())
    assert list(model.parameters())[-1].shape == list(small_mdlm(vocab_size=28).parameters())[-1].shape


def test_saving_again_replaces_every_file(tmp_path):
    save(full_model(), tmp_path / "out")
    other = small_mdlm(vocab_size=28, seed=5)
    save(other, tmp_path / "out")
    assert torch.equal(load(tmp_path / "out").table, other.table)


def test_a_later_save_leaves_nothing_of_an_earlier_one(tmp_path):
    full_model().save_pretrained(tmp_path / "out", max_shard_size="20KB")
    assert (tmp_path / "out" / "model.safetensors.index.json").exists()
    assert torch.equal(load(tmp_path / "out").table, full_model().table)
    other = small_mdlm(vocab_size=28, seed=5)
    save(other, tmp_path / "out")
    again = load(tmp_path / "out")
    assert torch.equal(again.table, other.table)
    assert again.feedback is None
    assert again.tokenizer is None


def test_files_can_be_read_by_others(tmp_path):
    save(small_mdlm(), tmp_path / "out")
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()}
    assert modes == {0o666 & ~files._umask()}


def test_a_wrapped_model_keeps_what_it_was_told(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=30, **sizes)).eval()
    save(arcmask.wrap(model, 3, shift=True, max_length=7), tmp_path / "out")
    again = load(tmp_path / "out")
    assert (again.mask_id, again.shift, again.max_length, again.tokenizer) == (3, True, 7, None)
    (tmp_path / "out" / "wrap.json").unlink()
    with pytest.raises(ArcmaskError, match="has no tokenizer, so its mask is not known; give mask_id"):
        load(tmp_path / "out")
    assert load(tmp_path / "out", mask_id=9).mask_id == 9


def test_a_tokenizer_with_another_mask_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    save(small_mdlm(vocab_size=28), folder)
    open_tokenizer("text8").save(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mask_token_id": 4}))
    with pytest.raises(ArcmaskError, match="is 27, but the model's is 4"):
        load(folder)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    save(full_model(), tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(ArcmaskError, match="could not be written: the disk is full"):
        save(small_mdlm(vocab_size=28, seed=5), tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_a_truncated_file_is_named(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(ArcmaskError, match=r"model\.safetensors is not a complete safetensors file"):
        load(folder)


def test_a_tokenizer_of_another_size_is_refused(folder):
    open_tokenizer("text8").inner.save_pretrained(str(folder))
    with pytest.raises(ArcmaskError, match="has 28 entries, but the model has 23"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, r"is not a checkpoint: it has no config\.json"),
        ("config.json", "{", r"config\.json is not JSON"),
        ("model.safetensors", None, r"has a config\.json, but no model\.safetensors"),
        ("feedback.json", '{"operator": "linear"}', r"feedback settings are \['operator'\]"),
        (
            "feedback.json",
            '{"operator": "linear", "top_k": "3", "karcher_steps": 3, "confidence": {"fixed": 0.1}}',
            r"feedback\.json does not describe feedback",
        ),
        (
            "config.json",
            '{"model_type": "mdlm", "vocab_size": "28"}',
            r"config\.json does not describe a model|vocab_size",
        ),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
    ],
)
def test_a_folder_that_is_not_whole_is_an_error(folder, name, content, message):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(ArcmaskError, match=message):
        load(folder)


def test_what_is_nowhere_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ArcmaskError, match="; did you mean 'sotu-tiny'"):
        load("sotu-tinny")
    with pytest.raises(ArcmaskError, match="there is no folder 'no/such-model', and the hub does not give it either"):
        load("no/such-model")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArcmaskError, match="is a file, but only Lightning checkpoints"):
        load(tmp_path / "file")
    with pytest.raises(ArcmaskError, match="unknown kind of weights 'avg'; choose one of: ema, raw"):
        load(tmp_path, weights="avg")


def test_a_masked_lm_of_transformers_is_wrapped(tmp_path):
    tokenizer = open_tokenizer("text8")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=tokenizer.size, **sizes)).eval()
    model.save_pretrained(tmp_path)
    tokenizer.inner.save_pretrained(str(tmp_path))
    denoiser = arcmask.load(tmp_path)
    assert isinstance(denoiser, Wrapped)
    assert denoiser.mask_id == tokenizer.mask_id
    denoiser.feedback = SoftMask()
    save(denoiser, tmp_path / "again")
    assert load(tmp_path / "again").feedback.settings() == denoiser.feedback.settings()


def test_a_model_that_only_its_own_code_opens_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "DUO"}))
    with pytest.raises(
        ArcmaskError, match=r"type 'DUO', which is neither 'mdlm' nor .* arcmask\.wrap\(model, mask_id\)"
    ):
        load(tmp_path)


def test_a_run_opens_at_its_newest_complete_checkpoint(tmp_path):
    for step, seed in ((100, 1), (200, 2), (300, 3)):
        folder = tmp_path / "checkpoints" / f"step-{step:07d}"
        save(small_mdlm(seed=seed), folder)
        if step < 300:
            (folder / "complete").touch()
    assert newest_checkpoint(tmp_path).name == "step-0000200"
    assert torch.equal(load(tmp_path).table, small_mdlm(seed=2).table)
    (tmp_path / "other" / "checkpoints").mkdir(parents=True)
    assert newest_checkpoint(tmp_path / "other") is None
    with pytest.raises(ArcmaskError, match="has no complete checkpoint"):
        load(tmp_path / "other")


def test_convert_to_bfloat16_halves_the_file_and_rounds_each_weight(folder, tmp_path):
    target = convert(str(folder), str(tmp_path / "half"), dtype="bfloat16")
    whole, half = load(folder), load(target)
    assert half.table.dtype == torch.bfloat16
    assert (target / "model.safetensors").stat().st_size < 0.6 * (folder / "model.safetensors").stat().st_size
    for exact, rounded in zip(whole.parameters(), half.parameters(), strict=True):
        assert torch.equal(exact.to(torch.bfloat16), rounded)


def test_convert_does_not_write_over_anything(folder, tmp_path):
    convert(str(folder), str(tmp_path / "out"))
    with pytest.raises(ArcmaskError, match="out exists already"):
        convert(str(folder), str(tmp_path / "out"))
    test_a_masked_lm_of_transformers_is_wrapped(tmp_path / "bert")
    with pytest.raises(ArcmaskError, match=r"is not a Diffusion Transformer.*Lightning"):
        convert(str(tmp_path / "bert"), str(tmp_path / "x.ckpt"))


@pytest.mark.slow
def test_the_released_size_loads_strictly_from_its_layout(tmp_path):
    """169M random weights under the released names; GPT-2's tokenizer is found by the vocabulary's size."""
    with torch.device("meta"):
        shapes = MDLM(size_config("small", 50258)).state_dict()
    weights = {key: torch.full(value.shape, 0.01) for key, value in shapes.items()}
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mdlm", "vocab_size": 50258}))
    model = load(tmp_path)
    assert sum(parameter.numel() for parameter in model.parameters()) == 169_627_218
    assert model.tokenizer.encode("Hello world") == [15496, 995]
