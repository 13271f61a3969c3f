"""Lightning files: weights by name, settings out of real omegaconf objects, and nothing in them is ever run."""

import os
import zipfile
from collections import OrderedDict

import pytest
import torch
from models import small_mdlm, some_tokens
from omegaconf import OmegaConf

from arcmask.checkpoint import convert, load, save
from arcmask.checkpoint.lightning import read_lightning
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask

SCALARS = {"tran_head.raw_scale": 0.3, "tran_head.raw_centre_neg": 1.2, "tran_head.raw_steep": 3.4}


def settings(**algo):
    """As Duo's code nests them."""
    algo = {"name": "mdlm", "parameterization": "subs", "time_conditioning": False, **algo}
    return OmegaConf.create({"algo": algo, "model": {"length": 16, "dropout": 0.25, "layers": [1, 2]}})


def write(path, model, config=None, scalars=True, ema_scalars=True, **changes):
    """A file as Lightning and the family's EMA write it; EMA tensors are the raw ones plus one."""
    state = OrderedDict(model.state_dict())
    if scalars:
        state |= {key: torch.tensor(value) for key, value in SCALARS.items()}
        state["tran_head.raw_temperature"] = torch.tensor(0.0)
    shadow = [v + 1 for k, v in state.items() if "inv_freq" not in k and (ema_scalars or not k.startswith("tran"))]
    content = {
        "state_dict": state,
        "ema": {"decay": 0.9999, "num_updates": 7, "shadow_params": shadow},
        "hyper_parameters": {"config": settings() if config is None else config},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}}],
        "pytorch-lightning_version": "2.2.1",
    }
    torch.save(content | changes, path)
    return path


def test_ema_weights_are_taken_by_default_and_raw_ones_on_request(tmp_path):
    model = small_mdlm()
    path = write(tmp_path / "a.ckpt", model)
    averaged, raw = load(path), load(path, weights="raw")
    for name, parameter in model.named_parameters():
        assert torch.equal(raw.get_parameter(name), parameter)
        assert torch.equal(averaged.get_parameter(name), parameter + 1)


@pytest.mark.parametrize("ema_scalars", [True, False])
def test_confidence_scalars_come_along(tmp_path, ema_scalars):
    path = write(tmp_path / "a.ckpt", small_mdlm(), ema_scalars=ema_scalars)
    confidence = load(path).feedback.confidence
    found = [confidence.raw_scale, confidence.raw_centre, confidence.raw_steepness]
    offset = 1.0 if ema_scalars else 0.0
    assert [x.item() for x in found] == pytest.approx([value + offset for value in SCALARS.values()])
    assert load(write(tmp_path / "b.ckpt", small_mdlm(), scalars=False)).feedback is None


def test_settings_are_read_off_shapes_and_omegaconf_objects(tmp_path):
    config = load(write(tmp_path / "a.ckpt", small_mdlm())).config
    found = (config.vocab_size, config.hidden_dim, config.cond_dim, config.n_blocks, config.n_heads)
    assert found == (23, 32, 8, 3, 4)
    assert (config.model_length, config.dropout) == (16, 0.25)


def test_a_file_becomes_a_folder_becomes_a_file_with_equal_logits(tmp_path):
    path = write(tmp_path / "a.ckpt", small_mdlm())
    convert(str(path), str(tmp_path / "folder"), weights="raw")
    convert(str(tmp_path / "folder"), str(tmp_path / "b.ckpt"))
    expected = small_mdlm()(some_tokens()).logits
    for source in ("folder", "b.ckpt"):
        again = load(tmp_path / source)
        torch.testing.assert_close(again(some_tokens()).logits, expected)
        assert again.feedback.confidence.raw_steepness.item() == pytest.approx(3.4)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


@pytest.mark.parametrize("place", ["beside", "state_dict", "ema"])
def test_pickled_code_is_never_run(tmp_path, place):
    mark = tmp_path / "was-here"
    evil = Malicious(mark)
    model = small_mdlm()
    if place == "beside":
        path = write(tmp_path / "a.ckpt", model, callbacks={"x": evil}, loops=[evil, {evil.path: evil}])
        load(path)
    else:
        changes = {"state_dict": {**model.state_dict(), "backbone.x": evil}}
        if place == "ema":
            changes = {"ema": {"shadow_params": [evil]}}
        path = write(tmp_path / "a.ckpt", model, **changes)
        with pytest.raises(ArcmaskError, match=rf"is refused: {place}.* is not a tensor"):
            load(path)
    assert not mark.exists()
    torch.load(path, weights_only=False)  # torch itself would have run it
    assert mark.exists()


def test_a_torchscript_program_is_not_opened(tmp_path):
    """torch.load would hand it to torch.jit.load, which runs the code in it."""
    with zipfile.ZipFile(tmp_path / "a.ckpt", "w") as archive:
        for name in ("a/data.pkl", "a/constants.pkl", "a/version"):
            archive.writestr(name, b"")
    with pytest.raises(ArcmaskError, match="is a TorchScript program, not a checkpoint; it is not opened"):
        load(tmp_path / "a.ckpt")


class Stateless:
    pass


def test_odd_objects_beside_the_tensors_do_no_harm(tmp_path):
    model = small_mdlm()
    for number, odd in enumerate(
        ({"config": None}, {"config": Stateless()}, Stateless(), [1], {"config": {"model": 3}})
    ):
        assert load(write(tmp_path / f"{number}.ckpt", model, hyper_parameters=odd)).config.vocab_size == 23


def test_feedback_and_mask_survive_the_way_through_a_file(tmp_path):
    model = small_mdlm(mask_token_id=4)
    for confidence in (Confidence(fixed=0.3), Confidence(centre=-1.5)):
        model.feedback = SoftMask("spherical", top_k=2, confidence=confidence)
        name = f"{confidence.fixed}"
        save(model, tmp_path / name)
        convert(str(tmp_path / name), str(tmp_path / f"{name}.ckpt"))
        again = load(tmp_path / f"{name}.ckpt")
        assert again.feedback.settings() == model.feedback.settings()
        assert again.mask_id == 4


def test_a_tokenizer_with_a_mask_of_its_own_needs_the_mask_to_be_said(tmp_path):
    config = OmegaConf.create({"data": {"tokenizer_name_or_path": "bert-base-uncased"}, "model": {"length": 16}})
    path = write(tmp_path / "a.ckpt", small_mdlm(), config=config)
    with pytest.raises(ArcmaskError, match="'bert-base-uncased' and does not say which id is the mask; give mask_id"):
        load(path)
    assert load(path, mask_id=5).mask_id == 5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (settings(name="duo", parameterization="mean"), "another process .parameterization 'mean'"),
        (settings(time_conditioning=True), "time_conditioning: true"),
        (OmegaConf.create({"diffusion": "uniform_state"}), "another process .*diffusion 'uniform_state'"),
        (OmegaConf.create({"parameterization": "sedd"}), "another process .parameterization 'sedd'"),
    ],
)
def test_models_of_another_process_are_refused(tmp_path, config, message):
    path = write(tmp_path / "a.ckpt", small_mdlm(), config=config)
    with pytest.raises(ArcmaskError, match=message):
        load(path)


def test_ema_tensors_that_do_not_fit_are_refused(tmp_path):
    model = small_mdlm()
    shadow = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ArcmaskError, match=r"has 3 EMA tensors for \d+ parameters"):
        load(write(tmp_path / "a.ckpt", model, ema={"shadow_params": shadow[:3]}, scalars=False))
    shadow[0], shadow[1] = shadow[1], shadow[0]
    with pytest.raises(ArcmaskError, match=r"EMA tensor for backbone.vocab_embed.embedding has shape \(8, 256\)"):
        load(write(tmp_path / "b.ckpt", model, ema={"shadow_params": shadow}, scalars=False))


def test_files_that_are_no_checkpoint_are_an_error(tmp_path):
    with pytest.raises(ArcmaskError, match="there is no file"):
        load(tmp_path / "none.ckpt")
    whole = write(tmp_path / "a.ckpt", small_mdlm()).read_bytes()
    (tmp_path / "half.ckpt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArcmaskError, match=r"half\.ckpt is not a complete checkpoint"):
        load(tmp_path / "half.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(ArcmaskError, match="has no state_dict"):
        load(tmp_path / "list.ckpt")
    torch.save({"state_dict": {"other.weight": torch.ones(2)}}, tmp_path / "other.ckpt")
    with pytest.raises(ArcmaskError, match=r"no tensor whose name begins with 'backbone\.'"):
        load(tmp_path / "other.ckpt")
    torch.save({"state_dict": {"backbone.weight": torch.ones(2)}}, tmp_path / "thing.ckpt")
    with pytest.raises(ArcmaskError, match=r"no backbone\.vocab_embed\.embedding"):
        load(tmp_path / "thing.ckpt")


def test_compiled_names_are_understood(tmp_path):
    model = small_mdlm()
    state = {key.replace("backbone.", "backbone._orig_mod."): value for key, value in model.state_dict().items()}
    file = read_lightning(write(tmp_path / "a.ckpt", model, state_dict=state, ema=None))
    assert set(file.weights) == set(model.state_dict())
