"""Estimates against what torch counts: operations, memory that is kept, and the layouts of models."""

from pathlib import Path

import pytest
import torch
from evaluators import small_gpt2
from families import causal_lm
from models import small_mdlm, some_tokens
from public_layouts import write_public
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from torch.utils.module_tracker import ModuleTracker
from transformers import AutoModelForCausalLM, GPT2Config

import arcmask
from arcmask.errors import ArcmaskError
from arcmask.estimates import Layout, Machine, base_layout, evaluator_layout, memory, work
from arcmask.estimates.sizes import KNOWN, count_parts
from arcmask.feedback import Gate, SoftMask
from arcmask.model import MDLM, size_config
from arcmask.objective import TwoPass
from arcmask.sampling import sample

V, B, L = 1000, 6, 16
_aten = torch.ops.aten


def count(run, monkeypatch) -> int:
    """Return the operations that torch counts, with those that it does not know on a CPU."""

    def attention(q, k, v, *_, **__):
        return sdpa_flop_count(q, k, v)

    def attention_backward(gradient, q, k, v, *_, **__):
        return sdpa_backward_flop_count(gradient, q, k, v)

    def product_in_place(_, a, b, **__):
        return 2 * a[0] * a[1] * b[1]

    # Its hooks on modules fail inside a function with its own gradient, which is what the loss is.
    monkeypatch.setattr(ModuleTracker, "_fw_pre_hook", lambda *_: None)
    monkeypatch.setattr(ModuleTracker, "_fw_post_hook", lambda *_: None)
    mapping = {
        _aten._scaled_dot_product_flash_attention_for_cpu: attention,
        _aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
        _aten.addmm_: product_in_place,
    }
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        run()
    return counter.get_total_flops()


def objective(recompute: bool = False, **settings) -> TwoPass:
    model = small_mdlm(vocab_size=V, hidden_dim=64, **settings).train()
    model.backbone.checkpoint_blocks = recompute
    return TwoPass(model, SoftMask())


def batch() -> tuple[torch.Tensor, ...]:
    draw = Gate(least_time=0.1).draw(1, 2, B, L)
    return some_tokens(b=B, length=L, vocab_size=V).clamp_max(V - 2), draw.time.float(), draw.masked


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("feedback", [False, True])
def test_a_training_step_has_the_operations_that_torch_counts(feedback, recompute, monkeypatch):
    two_pass, (rows, times, masked) = objective(recompute), batch()
    counted = count(lambda: two_pass(rows, times, masked, feedback=feedback).loss.backward(), monkeypatch)
    share = float(masked.float().mean())
    position = work.training(
        count_parts(two_pass.denoiser), L, masked=share, feedback=float(feedback), recompute=recompute
    )
    assert position.products * B * L == pytest.approx(counted, rel=0.02)  # the conditioning and the blend are left out


@pytest.mark.parametrize("steps", [4, 16])
@pytest.mark.parametrize("band", [None, (0.2, 0.8)])
def test_sampling_has_the_operations_that_torch_counts(band, steps, monkeypatch):
    model, feedback = small_mdlm(vocab_size=V, hidden_dim=64), None if band is None else SoftMask()
    counted = count(lambda: sample(model, num=32, steps=steps, feedback=feedback, batch_size=32), monkeypatch)
    expected = work.sampling(count_parts(model), L, steps, band=band).products * 32
    assert expected == pytest.approx(counted, rel=0.12)  # which positions a step reveals is drawn


def test_scoring_has_the_operations_that_torch_counts(monkeypatch):
    model, ids = small_gpt2(), torch.randint(0, 300, (3, 20))
    counted = count(lambda: model(ids), monkeypatch)
    assert work.scoring(count_parts(model), 20, with_losses=True).products * 60 == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("recompute", [False, True])
def test_activations_have_the_bytes_that_autograd_keeps(precision, dropout, recompute):
    kept = {}
    for blocks in (2, 5):
        two_pass, (rows, times, masked) = objective(recompute, n_blocks=blocks, dropout=dropout), batch()
        own = {parameter.untyped_storage().data_ptr() for parameter in two_pass.parameters()}
        saved: dict[int, torch.Tensor] = {}

        def keep(tensor: torch.Tensor, own=own, saved=saved) -> torch.Tensor:
            if tensor.untyped_storage().data_ptr() not in own:
                saved[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        is_bfloat16 = precision == "bfloat16"
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16),
        ):
            two_pass(rows, times, masked, feedback=False)
        # Weights that are cast to bfloat16 are kept too; they are counted with the state.
        casts = {shape for p in two_pass.parameters() if p.ndim == 2 for shape in (p.shape, p.T.shape)}
        wide = [tensor for tensor in saved.values() if tensor.numel() >= B * L and tensor.shape not in casts]
        kept[blocks] = sum(tensor.untyped_storage().nbytes() for tensor in wide)
    settings = {"rows": B, "length": L, "precision": precision, "dropout": dropout, "recompute": recompute}
    expected = [memory.training(_layout(blocks), world=1, device="cpu", **settings).activations for blocks in (2, 5)]
    assert (kept[5] - kept[2]) == pytest.approx(expected[1] - expected[0], rel=0.1)


def _layout(blocks: int) -> Layout:
    return count_parts(small_mdlm(vocab_size=V, hidden_dim=64, n_blocks=blocks))


def test_the_released_model_has_169_million_parameters():
    layout = base_layout("kuleshov-group/mdlm-owt")
    assert (layout.parameters, layout.width, layout.blocks, layout.vocabulary) == (169_627_218, 768, 12, 50_258)
    assert layout.matrices == 12 * 12 * 768**2
    assert base_layout("new:small", 50_258).parameters == layout.parameters
    assert base_layout("sotu-tiny").width == 192


@pytest.mark.parametrize("name", ["gpt2", "gpt2-large"])
def test_the_known_evaluators_are_what_transformers_builds(name):
    sizes = {"gpt2": {}, "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20}}[name]
    with torch.device("meta"):
        assert count_parts(AutoModelForCausalLM.from_config(GPT2Config(**sizes))) == KNOWN[name]


def test_the_layout_of_a_folder_needs_no_weights(tmp_path):
    model = small_gpt2()
    model.config.save_pretrained(tmp_path)
    assert evaluator_layout(str(tmp_path), Path) == count_parts(model)
    size_config("tiny", 100).save_pretrained(tmp_path / "base")
    assert base_layout(str(tmp_path / "base")).parameters == sum(
        p.numel() for p in MDLM.create("tiny", 100).parameters()
    )


@pytest.mark.parametrize("kind", ["llada", "Dream", "llama"])
def test_the_layout_of_a_language_model_is_that_of_the_denoiser(kind, tmp_path):
    folder = tmp_path / "base"
    if kind == "llama":
        arcmask.wrap(causal_lm(kind), bidirectional=True, mask_token="<mask>").save(folder)
    else:
        write_public(kind, folder)
    denoiser = arcmask.load(folder)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    assert base_layout(str(folder)) == count_parts(denoiser.model)


def test_cards_differ_in_speed_and_an_unknown_one_is_a_sentence():
    some = work.Work(products=1e15, numbers=1e12)
    seconds = {name: Machine.find(name, 768).seconds(some, "auto") for name in ("A6000", "A100", "H100")}
    assert seconds["H100"] < seconds["A100"] < seconds["A6000"]
    a100 = Machine.find("A100", 768)
    assert a100.seconds(some, "float64") > a100.seconds(some, "float32") > 2 * a100.seconds(some, "bfloat16")
    with pytest.raises(ArcmaskError, match="unknown card 'A1000'; did you mean 'A100'"):
        Machine.find("A1000", 768)


def test_this_machine_is_timed_and_shared_by_its_processes():
    machine = Machine.measure(64, rows=256)
    assert all(1e8 < speed < 1e15 for speed in machine.products.values())
    assert machine.numbers > 1e6
    assert (machine.speed_up(4), Machine.find("A100", 64).speed_up(4)) == (1, 4)


def test_a_24_gb_card_holds_a_training_step_of_the_paper():
    layout = base_layout("kuleshov-group/mdlm-owt")
    settings = {"length": 1024, "precision": "bfloat16", "dropout": 0.1, "world": 4, "device": "gpu"}
    sizes = [memory.training(layout, rows=rows, recompute=False, **settings).total for rows in (16, 8)]
    assert 24e9 > sizes[0] > sizes[1]
    assert memory.training(layout, rows=16, recompute=True, **settings).total < sizes[1]


def test_float64_takes_twice_the_memory_of_float32():
    settings = {"rows": 2, "length": 64, "dropout": 0.0, "recompute": False, "world": 1, "device": "cpu"}
    sizes = [memory.training(_layout(2), precision=name, **settings).total for name in ("float32", "float64")]
    assert sizes[1] == 2 * sizes[0]


def test_a_nucleus_takes_time_and_memory_beside_the_passes():
    layout, settings = _layout(2), {"rows": 2, "length": 64, "precision": "float32", "device": "cpu"}
    plain, nucleus = (work.sampling(layout, 64, 8, band=None, top_p=top_p) for top_p in (1.0, 0.9))
    assert (nucleus.products, nucleus.numbers > plain.numbers) == (plain.products, True)
    sizes = [memory.sampling(layout, top_p=top_p, **settings).total for top_p in (1.0, 0.9)]
    assert sizes[1] - sizes[0] == memory._SORTING * 2 * 64 * layout.vocabulary
