"""The Diffusion Transformer: the keys of the released checkpoint, and logits against an independent computation."""

import literal_dit
import pytest
import torch
from models import small_mdlm, some_tokens

from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask
from arcmask.model import MDLM, SIZES, Denoiser, MDLMConfig, autocast, dit, has_fast_bfloat16, size_config


def released_shapes(blocks: int = 12, d: int = 768, c: int = 128, v: int = 50258, head_dim: int = 64):
    """Return the keys and shapes of the released checkpoint."""
    shapes = {
        "vocab_embed.embedding": (v, d),
        "sigma_map.mlp.0.weight": (c, 256),
        "sigma_map.mlp.0.bias": (c,),
        "sigma_map.mlp.2.weight": (c, c),
        "sigma_map.mlp.2.bias": (c,),
        "rotary_emb.inv_freq": (head_dim // 2,),
        "output_layer.norm_final.weight": (d,),
        "output_layer.linear.weight": (v, d),
        "output_layer.linear.bias": (v,),
        "output_layer.adaLN_modulation.weight": (2 * d, c),
        "output_layer.adaLN_modulation.bias": (2 * d,),
    }
    for n in range(blocks):
        shapes |= {
            f"blocks.{n}.norm1.weight": (d,),
            f"blocks.{n}.norm2.weight": (d,),
            f"blocks.{n}.attn_qkv.weight": (3 * d, d),
            f"blocks.{n}.attn_out.weight": (d, d),
            f"blocks.{n}.mlp.0.weight": (4 * d, d),
            f"blocks.{n}.mlp.0.bias": (4 * d,),
            f"blocks.{n}.mlp.2.weight": (d, 4 * d),
            f"blocks.{n}.mlp.2.bias": (d,),
            f"blocks.{n}.adaLN_modulation.weight": (6 * d, c),
            f"blocks.{n}.adaLN_modulation.bias": (6 * d,),
        }
    return {f"backbone.{key}": shape for key, shape in shapes.items()}


def test_small_has_the_released_keys_shapes_and_number_of_parameters():
    with torch.device("meta"):
        model = MDLM(size_config("small", 50258))
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == released_shapes()
    assert len(model.state_dict()) == 131
    assert sum(parameter.numel() for parameter in model.parameters()) == 169_627_218


def test_inverse_frequencies_are_the_formulas():
    model = small_mdlm(hidden_dim=256, n_heads=4)
    expected = 10000.0 ** -(torch.arange(0, 64, 2).double() / 64)
    torch.testing.assert_close(model.backbone.rotary_emb.inv_freq.double(), expected, rtol=1e-6, atol=0)


def test_logits_agree_with_an_independent_float64_computation():
    model, tokens = small_mdlm(), some_tokens()
    with torch.no_grad():
        logits = model(tokens).logits.double()
    for sequence, ours in zip(tokens, logits, strict=True):
        expected = literal_dit.logits(model.state_dict(), model.table[sequence], heads=4)
        assert (ours - expected).abs().max() < 1e-4


def wrong_rotate(x, cos, sin):
    """Rotate interleaved pairs, as some other models do."""
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    half = cos.shape[-1] // 2
    cos, sin = (table[..., :half].repeat_interleave(2, dim=-1) for table in (cos, sin))
    return x * cos + turned * sin


@pytest.mark.parametrize("broken", ["rotation", "modulation", "packing", "gelu", "gate order", "time order"])
def test_the_comparison_fails_if_a_detail_is_swapped(broken, monkeypatch):
    model, tokens = small_mdlm(), some_tokens(b=1)
    if broken == "rotation":
        monkeypatch.setattr(dit, "rotate", wrong_rotate)
    elif broken == "modulation":
        right = dit.Norm.forward
        monkeypatch.setattr(dit.Norm, "forward", lambda self, x, shift, scale: right(self, x, scale, shift))
    elif broken == "gelu":
        for block in model.backbone.blocks:
            block.mlp[1] = torch.nn.GELU()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    if broken == "packing":  # (heads, three, head_dim) in place of (three, heads, head_dim)
        for block in model.backbone.blocks:
            weight = block.attn_qkv.weight.data.view(4, 3, 8, 32).transpose(0, 1).reshape(96, 32)
            block.attn_qkv.weight.data = weight
    elif broken == "gate order":  # (gate, shift, scale)
        for block in model.backbone.blocks:
            weight = block.adaLN_modulation.weight.data.view(2, 3, 32, 8).roll(1, dims=1).reshape(192, 8)
            block.adaLN_modulation.weight.data = weight
    elif broken == "time order":  # sines first
        first = model.backbone.sigma_map.mlp[0]
        first.weight.data = first.weight.data.roll(128, dims=1)
    with torch.no_grad():
        logits = model(tokens).logits[0].double()
    expected = literal_dit.logits(state, model.table[tokens[0]], heads=4)
    # The tanh form and the exact GELU differ by at most 5e-4, so the least of these is the smallest.
    assert (logits - expected).abs().max() > 2e-4


def test_logits_of_chosen_rows_equal_those_of_all():
    model, tokens = small_mdlm().double(), some_tokens()
    with torch.no_grad():
        hidden = model.hidden(model.table[tokens])
        rows = hidden[tokens == model.mask_id]
        full = model(tokens).logits
    torch.testing.assert_close(model.logits(rows), full[tokens == model.mask_id])


def test_logits_of_few_rows_need_little_memory():
    model = small_mdlm(vocab_size=20_000, model_length=128)
    tokens = some_tokens(b=4, length=128, vocab_size=20_000)
    whole = 4 * 128 * 20_000 * 4
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        hidden = model.hidden(model.table[tokens])
        model.logits(hidden.flatten(0, 1)[:16])
    assert max(event.cpu_memory_usage for event in profile.events()) < whole / 4


def test_a_new_model_is_flat_and_repeatable():
    first, second, other = (MDLM.create("tiny", 28, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.table, other.table)
    assert torch.equal(first(torch.tensor([[0, 27, 5]])).logits, torch.zeros(1, 3, 28))


def test_making_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    MDLM.create("tiny", 28, seed=9)
    assert torch.equal(torch.rand(3), expected)


def test_it_is_a_denoiser():
    model = small_mdlm()
    assert isinstance(model, Denoiser)
    assert (model.mask_id, model.max_length, tuple(model.table.shape)) == (22, 16, (23, 32))
    assert model.feedback is None
    assert model.tokenizer is None


def test_bfloat16_is_chosen_per_call_and_stays_close():
    model, tokens = small_mdlm(), some_tokens()
    with torch.no_grad():
        exact = model(tokens).logits
        with autocast("bfloat16", "cpu"):
            low = model(tokens).logits
        again = model(tokens).logits
    assert low.dtype == torch.bfloat16
    assert torch.equal(exact, again)
    assert 0 < (low.float() - exact).abs().max() < 0.1 * exact.abs().max()


def test_auto_precision_is_bfloat16_only_where_it_is_fast():
    with autocast("auto", "cpu"):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert (product.dtype == torch.bfloat16) == has_fast_bfloat16("cpu")
    with pytest.raises(ArcmaskError, match="unknown precision 'half'; choose one of: auto, bfloat16, float32"):
        autocast("half", "cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the compiler itself
def test_compiled_blocks_give_the_same():
    model, tokens = small_mdlm(), some_tokens()
    with torch.no_grad():
        plain = model(tokens).logits
        keys = list(model.state_dict())
        model.compile_blocks()
        torch.testing.assert_close(model(tokens).logits, plain, atol=1e-5, rtol=1e-5)
    assert list(model.state_dict()) == keys


def test_dropout_acts_in_training_only():
    model, tokens = small_mdlm(dropout=0.5), some_tokens()
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, model(tokens).logits)
        model.train()
        assert not torch.equal(model(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("size", sorted(SIZES))
def test_every_size_can_be_built(size):
    with torch.device("meta"):
        assert MDLM(size_config(size, 28)).config.vocab_size == 28


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_dim": 30}, "hidden_dim is 30, but must be a multiple of twice n_heads, 24"),
        ({"n_blocks": 0}, "n_blocks is 0, but must be a whole number from 1 to 1,000"),
        ({"mask_token_id": 50258}, "mask_token_id is 50258, but ids run from 0 to 50257"),
        ({"mask_token_id": 3.5}, "mask_token_id is 3.5"),
        ({"dropout": 7}, r"dropout is 7, but must lie in \[0, 1\)"),
        ({"time_conditioning": True}, "time_conditioning is true"),
    ],
)
def test_settings_that_do_not_fit_are_an_error(change, message):
    with pytest.raises(ArcmaskError, match=message):
        MDLMConfig(**change)


def test_unknown_sizes_and_long_sequences_are_an_error():
    with pytest.raises(ArcmaskError, match="unknown model size 'huge'; choose one of: medium, mini, nano, small, tiny"):
        size_config("huge", 28)
    model = small_mdlm()
    with pytest.raises(ArcmaskError, match="a sequence has 17 positions, but the model takes at most 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ArcmaskError, match="give either input_ids or inputs_embeds"):
        model()


def test_feedback_moves_with_its_model_and_keeps_its_dtype():
    model = small_mdlm()
    model.feedback = SoftMask()
    assert {parameter.dtype for parameter in model.double().feedback.parameters()} == {torch.float32}
    model.to("meta")
    assert {parameter.device.type for parameter in model.feedback.parameters()} == {"meta"}
    model.feedback = SoftMask()
    assert {parameter.device.type for parameter in model.feedback.parameters()} == {"meta"}
    assert not any("confidence" in key for key in model.state_dict())
