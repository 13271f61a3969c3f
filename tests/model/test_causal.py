"""Causal language models as denoisers: full attention, shifted predictions and a mask of their own."""

import json
import sys
from copy import deepcopy

import pytest
import torch
from families import CAUSAL, CAUSAL_ROWS, SCALED, SIZE, causal_lm, causal_tokenizer, scaled_lm
from transformers import LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

import arcmask
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.objective import TwoPass

V = CAUSAL_ROWS


@pytest.fixture(scope="module", params=CAUSAL)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def denoiser(family):
    return arcmask.wrap(causal_lm(family), tokenizer=causal_tokenizer(), bidirectional=True, mask_token="<mask>")


def some_ids(mask_id: int = V) -> torch.Tensor:
    ids = torch.randint(0, 26, (2, 9), generator=torch.Generator().manual_seed(2))
    ids[:, 2:6] = mask_id
    return ids


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_every_position_sees_every_other_and_predicts_the_next(family, attention):
    """Compared with the model as it was, which is told by a mask of its own that every position is seen."""
    model = causal_lm(family)
    model.set_attn_implementation("eager")
    ids = some_ids(mask_id=7)
    seen = torch.zeros(2, 1, 9, 9)
    expected = model(input_ids=ids, attention_mask=seen).logits
    causal = model(input_ids=ids).logits
    assert not torch.allclose(expected, causal, atol=0.01)
    model.set_attn_implementation(attention)
    denoiser = arcmask.wrap(model, 7, bidirectional=True)
    logits = denoiser.logits(denoiser.hidden(denoiser.table[ids]))
    known = torch.arange(V) != 7
    torch.testing.assert_close(logits[:, 1:, known], expected[:, :-1, known], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[:, 0, known], expected[:, 0, known], atol=1e-4, rtol=1e-4)
    unshifted = arcmask.wrap(model, 7, bidirectional=True, shift=False)
    logits = unshifted.logits(unshifted.hidden(unshifted.table[ids]))
    torch.testing.assert_close(logits[..., known], expected[..., known], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_sliding_windows_stay_and_lie_in_both_directions():
    torch.manual_seed(0)
    size = {**SIZE, "num_hidden_layers": 1, "vocab_size": V, "num_key_value_heads": 2, "initializer_range": 0.3}
    config = Qwen2Config(**size, use_sliding_window=True, sliding_window=5, max_window_layers=0)
    denoiser = arcmask.wrap(Qwen2ForCausalLM(config).eval(), 7, bidirectional=True, shift=False)
    ids = torch.randint(8, V, (1, 15), generator=torch.Generator().manual_seed(2))
    before = denoiser.hidden(denoiser.table[ids])
    ids[0, 7] = 7
    changed = (denoiser.hidden(denoiser.table[ids]) != before).any(-1)[0].nonzero().flatten()
    reach = 7 - int(changed[0])
    assert changed.tolist() == list(range(7 - reach, 7 + reach + 1))
    assert 4 <= reach <= 5


def test_a_new_mask_has_the_mean_direction_and_the_median_norm(family, denoiser):
    before = causal_lm(family).get_input_embeddings().weight.detach()
    assert denoiser.table.shape == (V + 1, 32)
    assert denoiser.mask_id == V
    assert torch.equal(denoiser.table[:V], before)
    row = denoiser.table[V].detach()
    mean = before.mean(0)
    torch.testing.assert_close(row / row.norm(), mean / mean.norm(), atol=1e-5, rtol=0)
    torch.testing.assert_close(row.norm(), before.norm(dim=1).median(), atol=0, rtol=1e-5)
    again = arcmask.wrap(causal_lm(family), bidirectional=True, mask_token="<mask>")  # without a tokenizer
    assert torch.equal(again.table, denoiser.table)


def test_a_new_mask_may_lie_in_a_row_that_the_tokenizer_does_not_use(family):
    denoiser = arcmask.wrap(causal_lm(family), tokenizer=causal_tokenizer(30), bidirectional=True, mask_token="<mask>")
    assert (denoiser.mask_id, denoiser.table.shape[0], denoiser.text_rows) == (30, V, 31)
    before = causal_lm(family).get_input_embeddings().weight.detach()
    torch.testing.assert_close(denoiser.table[30].norm(), before[:30].norm(dim=1).median(), atol=0, rtol=1e-5)
    logits = denoiser.logits(denoiser.hidden(denoiser.table[some_ids(30)]))
    assert bool((logits[..., 30:] == -torch.inf).all())
    assert bool(logits[..., :30].isfinite().all())


def test_a_mask_token_that_the_tokenizer_has_keeps_its_row(family):
    denoiser = arcmask.wrap(causal_lm(family), tokenizer=causal_tokenizer(), bidirectional=True, mask_token="<5>")
    assert denoiser.mask_id == causal_tokenizer().convert_tokens_to_ids("<5>")
    assert torch.equal(denoiser.table, causal_lm(family).get_input_embeddings().weight)
    assert denoiser.tokenizer.mask_token == "<5>"


def test_the_mask_never_gets_any_probability(denoiser):
    with torch.no_grad():
        logits = denoiser.logits(denoiser.hidden(denoiser.table[some_ids()]))
    assert bool((logits[..., V] == -torch.inf).all())
    samples = arcmask.sample(denoiser, num=4, length=12, steps=4, feedback=SoftMask(confidence=Confidence(fixed=0.3)))
    assert int(samples.tokens.max()) < V
    assert "<mask>" not in "".join(samples.texts)


def test_feedback_changes_only_masked_inputs_and_nothing_with_weight_zero(denoiser):
    ids = some_ids()
    with torch.no_grad():
        plain = denoiser.logits(denoiser.hidden(denoiser.table[ids]))
        none = SoftMask(confidence=Confidence(fixed=0.0))(ids, plain, denoiser.table, V)
        assert torch.equal(denoiser.logits(denoiser.hidden(none.embeddings)), plain)
        some = SoftMask(confidence=Confidence(fixed=0.4))(ids, plain, denoiser.table, V)
        assert torch.equal((some.embeddings != denoiser.table[ids]).any(-1), ids == V)
        assert not torch.allclose(denoiser.logits(denoiser.hidden(some.embeddings))[..., :V], plain[..., :V], atol=1e-3)


def test_it_can_be_trained_and_the_tables_of_a_tied_model_stay_one(family):
    denoiser = arcmask.wrap(causal_lm(family), bidirectional=True, mask_token="<mask>")
    rows = torch.randint(0, V, (2, 9), generator=torch.Generator().manual_seed(4))
    result = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.3)))(
        rows, torch.tensor([0.5, 0.9]), some_ids() == V, feedback=True
    )
    result.loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in denoiser.parameters() if p.grad is not None)
    is_tied = denoiser.model.get_output_embeddings().weight is denoiser.model.get_input_embeddings().weight
    assert is_tied == (family == "gpt2")


@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_a_saved_denoiser_opens_by_itself(family, tmp_path, with_tokenizer):
    causal_lm(family).save_pretrained(tmp_path / "causal")
    if with_tokenizer:
        causal_tokenizer().save_pretrained(tmp_path / "causal")
    denoiser = arcmask.load(tmp_path / "causal", bidirectional=True, shift=True, mask_token="<mask>")
    denoiser.save(tmp_path / "adapted")
    again = arcmask.load(tmp_path / "adapted")
    assert (again.mask_id, again.shift, again.bidirectional, again.max_length) == (V, True, True, 24)
    ids = some_ids()
    with torch.no_grad():
        torch.testing.assert_close(again.hidden(again.table[ids]), denoiser.hidden(denoiser.table[ids]))
        torch.testing.assert_close(again.logits(torch.ones(1, 32)), denoiser.logits(torch.ones(1, 32)))
    assert json.loads((tmp_path / "adapted" / "wrap.json").read_text())["bidirectional"] is True
    if with_tokenizer:
        assert again.tokenizer.mask_token == "<mask>"
        assert again.tokenizer.encode("a cat") == denoiser.tokenizer.encode("a cat")
    assert arcmask.load(tmp_path / "adapted", shift=False).shift is False


def test_convert_writes_an_adapted_model(tmp_path):
    causal_lm("llama").save_pretrained(tmp_path / "causal")
    causal_tokenizer().save_pretrained(tmp_path / "causal")
    out = arcmask.checkpoint.convert(
        str(tmp_path / "causal"), str(tmp_path / "adapted"), bidirectional=True, mask_token="<mask>"
    )
    assert arcmask.load(out).mask_id == V


class Capped(LlamaForCausalLM):
    """A model with a soft cap that only large logits feel."""

    def forward(self, **inputs):
        output = super().forward(**inputs)
        output.logits = 100 * torch.tanh(output.logits / 100)
        return output


class Deaf(LlamaForCausalLM):
    """A model that ignores the embeddings that it is given."""

    def forward(self, input_ids=None, inputs_embeds=None, **inputs):
        if input_ids is None:
            input_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long)
        return super().forward(input_ids=input_ids, **inputs)


class Unmasked(LlamaForCausalLM):
    """A model that ignores the attention mask."""

    def forward(self, attention_mask=None, **inputs):  # noqa: ARG002
        return super().forward(**inputs)


class Strict(LlamaForCausalLM):
    """A model that takes no attention mask."""

    def forward(self, inputs_embeds):
        return super().forward(inputs_embeds=inputs_embeds)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Capped, "it changes its logits after the output embeddings"),
        (Deaf, "it ignores inputs_embeds"),
        (Unmasked, "it ignores the attention mask"),
        (Strict, "it does not take an attention mask"),
    ],
)
def test_what_cannot_be_done_correctly_is_refused(kind, message):
    model = kind(causal_lm("llama").config).eval()
    with pytest.raises(ArcmaskError, match=f"a {kind.__name__} cannot be wrapped: {message}"):
        arcmask.wrap(model, 7, bidirectional=True)


@pytest.mark.parametrize("family", SCALED)
def test_a_model_that_scales_its_embeddings_is_refused(family, tmp_path):
    """Feedback blends rows of the table, and these models never see a row as it is."""
    model = scaled_lm(family)
    table = model.get_input_embeddings()
    if torch.equal(table(torch.tensor(3)), table.weight[3]):
        pytest.skip(f"{family} scales inputs_embeds too in this version of transformers, so its rows are what it sees")
    message = f"a {type(model).__name__} cannot be wrapped: it scales or changes the rows of its embedding"
    for bidirectional in (True, False):
        with pytest.raises(ArcmaskError, match=message):
            arcmask.wrap(scaled_lm(family), 7, bidirectional=bidirectional)
    scaled_lm(family).save_pretrained(tmp_path)
    with pytest.raises(ArcmaskError, match=message):
        arcmask.load(tmp_path, bidirectional=True, mask_token="<mask>")


def test_a_model_that_stays_causal_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["arcmask.model.wrap"], "attend_both_ways", lambda _: None)
    with pytest.raises(ArcmaskError, match="a LlamaForCausalLM cannot be bidirectional"):
        arcmask.wrap(causal_lm("llama"), 7, bidirectional=True)


def test_bad_arguments_are_an_error(tmp_path):
    model = causal_lm("llama")
    with pytest.raises(ArcmaskError, match="the mask token '<mask>' is for a causal model; give bidirectional=True"):
        arcmask.wrap(deepcopy(model), mask_token="<mask>")
    with pytest.raises(ArcmaskError, match="the mask is given twice, as '<mask>' and as 3"):
        arcmask.wrap(deepcopy(model), 3, bidirectional=True, mask_token="<mask>")
    with pytest.raises(ArcmaskError, match="the mask token is ' ', but must have visible characters"):
        arcmask.wrap(deepcopy(model), bidirectional=True, mask_token=" ")
    with pytest.raises(ArcmaskError, match=f"the mask id is {V}, but the model's table has rows 0 to {V - 1}"):
        arcmask.wrap(deepcopy(model), V, bidirectional=True)
    with pytest.raises(ArcmaskError, match="has 61 entries, but the model has 40"):
        arcmask.wrap(deepcopy(model), tokenizer=causal_tokenizer(61), mask_id=3, bidirectional=True)
    with pytest.raises(ArcmaskError, match="has 61 entries, but the model has 40"):
        arcmask.wrap(deepcopy(model), tokenizer=causal_tokenizer(60), mask_token="<mask>", bidirectional=True)
    model.save_pretrained(tmp_path)
    with pytest.raises(ArcmaskError, match="open a causal LM with bidirectional=True"):
        arcmask.load(tmp_path)
    with pytest.raises(ArcmaskError, match="has no tokenizer, so its mask is not known; give mask_token"):
        arcmask.load(tmp_path, bidirectional=True)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "strange"}))
    with pytest.raises(ArcmaskError, match="has a model of type 'strange', which is neither 'mdlm' nor a causal LM"):
        arcmask.load(tmp_path, bidirectional=True, mask_token="<mask>")
