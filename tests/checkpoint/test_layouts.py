"""LLaDA and Dream in their public layouts: equal to a literal forward pass, strict by name, without remote code."""

import json

import pytest
import safetensors.torch
import torch
from families import causal_lm
from public_layouts import (
    CONFIGS,
    LENGTH,
    MASK,
    ROWS,
    literal,
    public_weights,
    some_ids,
    write_dream_tokenizer,
    write_llada_tokenizer,
    write_public,
)
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

import arcmask
from arcmask.checkpoint import convert, load
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError

KINDS = ("llada", "Dream")
SWAPS = ("shift", "pairing", "base", "gate", "epsilon", "causal")


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return write_public(kind, tmp_path_factory.mktemp(kind) / "public")


def logits_of(denoiser, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return denoiser.logits(denoiser.hidden(denoiser.table[ids]))


def literal_logits(kind: str, wrong: str = "", weights=None) -> torch.Tensor:
    model = literal(kind, wrong, weights)
    return torch.stack([model.logits(row) for row in some_ids(kind)])


@pytest.fixture(scope="module")
def logits(kind, folder) -> torch.Tensor:
    return logits_of(load(folder), some_ids(kind)).double()


def test_logits_are_those_of_the_literal_forward_pass(kind, logits):
    assert float((logits - literal_logits(kind)).abs().max()) < 1e-5


def test_every_swap_that_matters_is_seen(kind, logits):
    for wrong in SWAPS if kind == "llada" else (*SWAPS, "bias"):  # LLaDA has no biases; one is refused below
        assert float((logits - literal_logits(kind, wrong)).abs().max()) > 1e-3, wrong


def test_what_is_opened_is_transformers_own_class_with_the_models_numbers(kind, folder):
    denoiser = load(folder)
    assert type(denoiser.model) is (LlamaForCausalLM if kind == "llada" else Qwen2ForCausalLM)
    assert (denoiser.mask_id, denoiser.max_length, denoiser.shift) == (MASK[kind], LENGTH, kind == "Dream")
    assert denoiser.table.shape == (ROWS, 32)
    assert not denoiser.training
    assert load(folder, mask_id=5, shift=False).mask_id == 5
    with pytest.raises(ArcmaskError, match=f"a sequence has {LENGTH + 1} positions, but the model takes at most"):
        denoiser.hidden(denoiser.table[torch.zeros(1, LENGTH + 1, dtype=torch.long)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convert_writes_the_public_layout_back(kind, tmp_path, dtype):
    weights = {key: value.to(dtype) for key, value in public_weights(kind).items()}
    folder = write_public(kind, tmp_path / "public", weights)
    again = convert(str(folder), str(tmp_path / "again"))
    written = safetensors.torch.load_file(again / "model.safetensors")
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[key], weights[key]) and written[key].dtype == dtype for key in weights)
    config = json.loads((again / "config.json").read_text())
    assert config == CONFIGS[kind] | {"torch_dtype": str(dtype).removeprefix("torch.")}
    assert torch.equal(logits_of(load(again), some_ids(kind)), logits_of(load(folder), some_ids(kind)))
    if dtype == torch.float32:
        small = convert(str(folder), str(tmp_path / "small"), dtype="bfloat16")
        assert load(small).table.dtype == torch.bfloat16


def test_weights_are_taken_over_without_a_second_copy(folder, monkeypatch):
    """The model's parameters are the very tensors that were read from the files."""
    read = {}

    def reading(file):
        weights = load_file(file)
        read.update(weights)
        return weights

    load_file = safetensors.torch.load_file
    monkeypatch.setattr(safetensors.torch, "load_file", reading)
    denoiser = load(folder)
    assert len(read) > 20
    assert {p.data_ptr() for p in denoiser.parameters()} == {tensor.data_ptr() for tensor in read.values()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w, key: w.pop(key), "missing {}"),
        (lambda w, key: w.update({f"{key}.more": torch.ones(2)}), r"unexpected {}\.more"),
        (lambda w, key: w.update({key: w[key][1:].contiguous()}), r"{} is \(31, 32\), not \(32, 32\)"),
    ],
)
def test_a_key_or_shape_that_does_not_fit_is_named(kind, tmp_path, change, message):
    key = "model.transformer.blocks.1.q_proj.weight" if kind == "llada" else "model.layers.1.self_attn.q_proj.weight"
    weights = public_weights(kind)
    change(weights, key)
    with pytest.raises(ArcmaskError, match=message.format(key.replace(".", r"\."))):
        load(write_public(kind, tmp_path, weights))


def test_a_bias_in_llada_is_refused_and_one_that_dream_lacks_is_named(tmp_path):
    weights = public_weights("llada")
    weights["model.transformer.blocks.0.q_proj.bias"] = torch.zeros(32)
    with pytest.raises(ArcmaskError, match=r"unexpected model\.transformer\.blocks\.0\.q_proj\.bias"):
        load(write_public("llada", tmp_path / "llada", weights))
    weights = public_weights("Dream")
    del weights["model.layers.0.self_attn.k_proj.bias"]
    with pytest.raises(ArcmaskError, match=r"missing model\.layers\.0\.self_attn\.k_proj\.bias"):
        load(write_public("Dream", tmp_path / "Dream", weights))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("llada", {"alibi": True}, "alibi is True, but arcmask opens LLaDA models with False only"),
        ("llada", {"attention_layer_norm": True}, "attention_layer_norm is True"),
        ("llada", {"layer_norm_type": "default"}, "layer_norm_type is 'default', .* with 'rms' only"),
        ("llada", {"activation_type": "gelu"}, "activation_type is 'gelu', .* with 'silu' or 'swiglu' only"),
        ("llada", {"include_qkv_bias": True}, "include_qkv_bias is True"),
        ("llada", {"rope": False}, "rope is False"),
        ("llada", {"clip_qkv": 8.0}, r"clip_qkv is 8\.0, .* with None only"),
        ("llada", {"num_experts": 64}, "num_experts asks for a mixture of experts"),
        ("llada", {"d_model": None}, "d_model is None, but must be a whole number from 1"),
        ("llada", {"n_layers": 10**9}, "n_layers is 1000000000, but must be a whole number from 1 to 1,000"),
        ("Dream", {"use_sliding_window": True}, "use_sliding_window is True, .* Dream models with False only"),
        ("Dream", {"rope_scaling": {"type": "yarn"}}, "rope_scaling is .*yarn"),
        ("Dream", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (
            "Dream",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
            "rope_parameters has rope_type 'yarn', but",
        ),
        (
            "Dream",
            {"rope_parameters": {"factor": 4.0}},
            r"rope_parameters has factor 4\.0, but arcmask opens Dream models",
        ),
        (
            "Dream",
            {"rope_parameters": {"rope_theta": 1e4}},
            r"rope_theta is given twice, as 1000000\.0 and as 10000\.0",
        ),
        ("Dream", {"rope_parameters": [1e4]}, r"rope_parameters is \[10000\.0\], but must hold settings by name"),
        ("Dream", {"rope_theta": -1}, "rope_theta is -1, but must be a number above 0"),
        (
            "Dream",
            {"layer_types": ["full_attention", "sliding_attention"]},
            "layer_types has 'sliding_attention', but arcmask opens Dream models with 'full_attention' only",
        ),
        (
            "llada",
            {"rope_parameters": {"type": "linear"}},
            "rope_parameters has type 'linear', but arcmask opens LLaDA",
        ),
        ("llada", {"rope_theta": "x"}, "rope_theta is 'x', but must be a number above 0"),
        ("Dream", {"num_attention_heads": 0}, "num_attention_heads is 0"),
        ("Dream", {"mask_token_id": ROWS}, f"the mask id is {ROWS}, but the model's table has rows 0 to {ROWS - 1}"),
        ("llada", {"mask_token_id": "x"}, "mask_token_id is 'x', but must be a whole number"),
        ("llada", {"mask_token_id": None}, "the mask id is 126336, but the model's table has rows 0 to"),
        ("Dream", {"mask_token_id": None}, "the mask id is 151666, but the model's table has rows 0 to"),
        ("Dream", {"model_type": "dreamt"}, "has a model of type 'dreamt', which is neither 'mdlm' nor a masked LM"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_one_sentence(kind, changes, message, tmp_path):
    with pytest.raises(ArcmaskError, match=message) as caught:
        load(write_public(kind, tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_a_rotary_base_is_read_in_the_spelling_of_transformers_5(kind, tmp_path, logits):
    base = CONFIGS[kind]["rope_theta"]
    spelling = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": base}}
    folder = write_public(kind, tmp_path / "spelt", **spelling, layer_types=["full_attention"] * 2)
    assert torch.equal(logits_of(load(folder), some_ids(kind)).double(), logits)
    again = convert(str(folder), str(tmp_path / "again"))
    assert torch.equal(logits_of(load(again), some_ids(kind)).double(), logits)


def test_another_shift_than_the_familys_is_saved(kind, folder, tmp_path):
    other = kind != "Dream"
    denoiser = load(folder, shift=other)
    denoiser.save(tmp_path / "other")
    assert json.loads((tmp_path / "other" / "wrap.json").read_text()) == {"shift": other}
    again = load(tmp_path / "other")
    assert again.shift is other
    assert torch.equal(logits_of(again, some_ids(kind)), logits_of(denoiser, some_ids(kind)))
    assert load(convert(str(folder), str(tmp_path / "converted"), shift=other)).shift is other
    load(tmp_path / "other", shift=not other).save(tmp_path / "other")
    assert not (tmp_path / "other" / "wrap.json").exists()
    assert load(tmp_path / "other").shift is not other
    (tmp_path / "other" / "wrap.json").write_text('{"shift": 1}')
    with pytest.raises(ArcmaskError, match=r"wrap\.json: shift is 1, but must be true or false"):
        load(tmp_path / "other")


INDEX, FIRST, SECOND = "model.safetensors.index.json", *(f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": 5}, "the weight_map has 5 for a, but must have the name of a file"),
        ({"a": ["x"]}, r"the weight_map has \['x'\] for a, but"),
        ({"a": "../x"}, r"the weight_map has '\.\./x' for a, but"),
        ([], "has no weight_map"),
    ],
)
def test_a_damaged_index_is_an_error(kind, tmp_path, weight_map, message):
    folder = write_public(kind, tmp_path)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ArcmaskError, match=message):
        load(folder)


def test_a_tensor_lies_in_one_shard_the_one_of_the_index(kind, tmp_path):
    folder = write_public(kind, tmp_path)
    first, second = (safetensors.torch.load_file(folder / name) for name in (FIRST, SECOND))
    key = sorted(first)[0]
    safetensors.torch.save_file(second | {key: torch.zeros_like(first[key])}, folder / SECOND)
    with pytest.raises(ArcmaskError, match=f"{SECOND} has {key}, but {INDEX} lists it in {FIRST}"):
        load(folder)
    safetensors.torch.save_file(second | {"more": torch.zeros(1)}, folder / SECOND)
    with pytest.raises(ArcmaskError, match=f"{SECOND} has more, but {INDEX} does not list it"):
        load(folder)


def test_weights_that_are_whole_numbers_are_an_error(kind, tmp_path):
    weights = public_weights(kind)
    key = sorted(weights)[0]
    weights[key] = weights[key].to(torch.int8)
    with pytest.raises(
        ArcmaskError, match=f"{key} is int8, but arcmask reads weights in float16, bfloat16, float32 or"
    ):
        load(write_public(kind, tmp_path, weights))


def test_a_missing_shard_of_another_language_model_is_named(tmp_path):
    causal_lm("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(path.name for path in tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    (tmp_path / shards[1]).unlink()
    with pytest.raises(ArcmaskError, match=f"has a config.json, but no {shards[1]}"):
        load(tmp_path, bidirectional=True, mask_token="<mask>")


def test_a_missing_shard_is_named(kind, tmp_path):
    folder = write_public(kind, tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ArcmaskError, match=r"but no model-00002-of-00002\.safetensors"):
        load(folder)


def test_a_tied_head_needs_no_key_and_is_written_without_one(kind, tmp_path):
    head, tied = ("model.transformer.ff_out", "weight_tying") if kind == "llada" else ("lm_head", "tie_word_embeddings")
    table = "model.transformer.wte.weight" if kind == "llada" else "model.embed_tokens.weight"
    weights = public_weights(kind)
    weights[f"{head}.weight"] = weights[table]
    expected = literal_logits(kind, weights=weights)
    del weights[f"{head}.weight"]
    denoiser = load(write_public(kind, tmp_path / "tied", weights, **{tied: True}))
    assert float((logits_of(denoiser, some_ids(kind)) - expected).abs().max()) < 1e-5
    denoiser.save(tmp_path / "again")
    assert safetensors.torch.load_file(tmp_path / "again" / "model.safetensors").keys() == weights.keys()


@pytest.fixture
def with_tokenizer(kind, tmp_path):
    """A checkpoint with a tokenizer of fewer entries than the table has rows."""
    folder = write_public(kind, tmp_path / "with tokenizer")
    if kind == "llada":
        write_llada_tokenizer(folder)
    else:
        write_dream_tokenizer(folder)
    return folder


def test_the_tokenizer_needs_no_code_and_its_mask_is_the_models(kind, with_tokenizer, tmp_path):
    denoiser = load(with_tokenizer)
    tokenizer = denoiser.tokenizer
    assert (tokenizer.mask_id, tokenizer.size, tokenizer.end_id) == (MASK[kind], MASK[kind] + 1, 32)
    assert tokenizer.mask_token == ("<|mdm_mask|>" if kind == "llada" else "<|mask|>")
    assert tokenizer.decode(tokenizer.encode("a cat")) == "a cat"
    assert open_tokenizer(with_tokenizer).inner.get_vocab() == tokenizer.inner.get_vocab()
    denoiser.save(tmp_path / "again")
    again = load(tmp_path / "again").tokenizer
    assert (again.mask_id, again.inner.get_vocab()) == (tokenizer.mask_id, tokenizer.inner.get_vocab())
    assert again.encode("a cat") == tokenizer.encode("a cat")


def test_rows_that_the_tokenizer_does_not_know_get_no_probability(kind, with_tokenizer):
    denoiser = load(with_tokenizer)
    size = denoiser.tokenizer.size
    assert size < ROWS
    logits = logits_of(denoiser, some_ids(kind))
    assert bool((logits[..., size:] == -torch.inf).all())
    torch.testing.assert_close(logits[..., :size].double(), literal_logits(kind)[..., :size], atol=1e-5, rtol=0)
    with torch.no_grad():  # a model that would draw nothing else
        denoiser.linear_head.weight[size:] = 100 * denoiser.hidden(denoiser.table[some_ids(kind)])[0, 0]
    samples = arcmask.sample(denoiser, num=4, length=20, steps=5, seed=1)
    assert int(samples.tokens.max()) < size


def test_a_tokenizer_of_another_size_is_an_error(tmp_path):
    folder = write_public("llada", tmp_path / "large")
    write_llada_tokenizer(folder, *(f"<{number}>" for number in range(9)))
    with pytest.raises(ArcmaskError, match=f"has 41 entries, but the model has {ROWS}"):
        load(folder)
    folder = write_public("llada", tmp_path / "small")
    write_llada_tokenizer(folder, "<|endoftext|>")
    with pytest.raises(ArcmaskError, match="the mask id is 37, but the tokenizer has 33 entries"):
        load(folder)
