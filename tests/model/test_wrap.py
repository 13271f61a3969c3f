"""Transformers models as denoisers: small random models of several families."""

import pytest
import torch
from families import MASKED, ROWS, masked_lm
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.model import Denoiser, wrap

V, MASK = ROWS, 4


@pytest.fixture(scope="module", params=MASKED)
def model(request):
    return masked_lm(request.param)


def tokens() -> torch.Tensor:
    ids = torch.randint(5, V, (2, 9), generator=torch.Generator().manual_seed(2))
    ids[:, 2:6] = MASK
    return ids


@torch.no_grad()
def test_hidden_and_logits_give_the_models_own_output(model):
    denoiser = wrap(model, MASK)
    assert isinstance(denoiser, Denoiser)
    logits = denoiser.logits(denoiser.hidden(denoiser.table[tokens()]))
    torch.testing.assert_close(logits, model(input_ids=tokens()).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_feedback_of_weight_zero_leaves_the_logits_unchanged(model):
    denoiser = wrap(model, MASK)
    plain = model(input_ids=tokens()).logits
    feedback = SoftMask(confidence=Confidence(fixed=0.0))(tokens(), plain, denoiser.table, MASK)
    logits = denoiser.logits(denoiser.hidden(feedback.embeddings))
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_feedback_changes_only_masked_inputs_and_so_the_logits(model):
    denoiser = wrap(model, MASK)
    plain = model(input_ids=tokens()).logits
    feedback = SoftMask(confidence=Confidence(fixed=0.4))(tokens(), plain, denoiser.table, MASK)
    changed = (feedback.embeddings != denoiser.table[tokens()]).any(-1)
    assert torch.equal(changed, tokens() == MASK)
    assert not torch.allclose(denoiser.logits(denoiser.hidden(feedback.embeddings)), plain, atol=1e-5)


def test_the_model_is_left_as_it_was(model):
    before = model(input_ids=tokens()).logits
    denoiser = wrap(model, MASK)
    denoiser.hidden(denoiser.table[tokens()])
    assert torch.equal(model(input_ids=tokens()).logits, before)
    assert not model.training


@torch.no_grad()
def test_shift_moves_every_prediction_one_position_on():
    model = masked_lm("bert")
    plain, shifted = (wrap(model, MASK, shift=shift).hidden(model.get_input_embeddings()(tokens())) for shift in (0, 1))
    assert torch.equal(shifted[:, 0], plain[:, 0])
    assert torch.equal(shifted[:, 1:], plain[:, :-1])


def test_the_longest_sequence_is_the_models_own():
    assert wrap(masked_lm("bert"), MASK).max_length == 20
    denoiser = wrap(masked_lm("roberta"), MASK)  # positions 0 and 1 belong to padding
    assert denoiser.max_length == 20
    denoiser.hidden(denoiser.table[torch.full((1, 20), MASK)])
    with pytest.raises(ArcmaskError, match="a sequence has 21 positions, but the model takes at most 20"):
        denoiser.hidden(denoiser.table[torch.full((1, 21), MASK)])


@pytest.mark.parametrize("family", MASKED)
def test_dropout_is_set_everywhere(family):
    denoiser = wrap(masked_lm(family), MASK)
    embeddings = denoiser.table[tokens()].detach()

    def outputs() -> tuple[torch.Tensor, torch.Tensor]:
        denoiser.train()
        return denoiser.hidden(embeddings), denoiser.hidden(embeddings)

    denoiser.set_dropout(0.3)
    first, second = outputs()
    assert not torch.allclose(first, second)
    rates = [module.p for module in denoiser.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(rates) == {0.3}
    denoiser.set_dropout(0.0)
    first, second = outputs()
    assert torch.equal(first, second)
    torch.testing.assert_close(first, denoiser.eval().hidden(embeddings))


class Noisy(BertForMaskedLM):
    """A model with dropout that its settings do not name."""

    def forward(self, inputs_embeds=None, **inputs):
        if inputs_embeds is not None:
            inputs_embeds = torch.nn.functional.dropout(inputs_embeds, 0.5, self.training)
        return super().forward(inputs_embeds=inputs_embeds, **inputs)


def test_dropout_that_cannot_be_reached_is_an_error():
    denoiser = wrap(Noisy(masked_lm("bert").config), MASK)
    with pytest.raises(ArcmaskError, match=r"dropout is 0\.2, but a Noisy has dropout that cannot be changed"):
        denoiser.set_dropout(0.2)


def test_checkpointed_blocks_have_the_same_gradients_and_run_twice():
    denoiser = wrap(masked_lm("bert"), MASK)
    denoiser.set_dropout(0.0)
    assert [type(block).__name__ for block in denoiser.blocks] == ["BertLayer"] * 2
    runs, gradients = [], []
    denoiser.blocks[0].register_forward_pre_hook(lambda *_: runs.append(1))
    for is_on in (False, True):
        runs.clear()
        denoiser.set_checkpointing(is_on)
        denoiser.zero_grad()
        denoiser.train().hidden(denoiser.table[tokens()]).sum().backward()
        gradients.append(denoiser.table.grad.clone())
        assert len(runs) == 1 + is_on
    torch.testing.assert_close(*gradients)


def test_what_a_wrapped_model_cannot_do_is_an_error():
    denoiser = wrap(masked_lm("bert"), MASK)
    denoiser.model.supports_gradient_checkpointing = False
    with pytest.raises(ArcmaskError, match="a BertForMaskedLM has no gradient checkpointing"):
        denoiser.set_checkpointing(True)
    denoiser.set_checkpointing(False)


def test_a_forward_that_someone_else_put_on_the_output_layer_stays(model):
    output = model.get_output_embeddings()
    calls = []
    inner = type(output).forward

    def hooked(hidden):
        calls.append(len(hidden))
        return inner(output, hidden)

    output.forward = hooked
    try:
        denoiser = wrap(model, MASK)
        denoiser.hidden(denoiser.table[tokens()])
        assert output.forward is hooked
        before = len(calls)
        model(input_ids=tokens())
        assert len(calls) == before + 1
    finally:
        del output.forward


class Bare(BertForMaskedLM):
    """A model that takes no ids."""

    def forward(self, inputs_embeds, **inputs):
        return super().forward(inputs_embeds=inputs_embeds, **inputs)


class Softcapped(BertForMaskedLM):
    """A model that changes its logits after the output embeddings."""

    def forward(self, **inputs):
        output = super().forward(**inputs)
        output.logits = 0.01 * torch.tanh(output.logits)
        return output


def test_models_that_do_not_fit_are_an_error():
    bert = masked_lm("bert")
    with pytest.raises(ArcmaskError, match="mask id is 50, but the model's table has rows 0 to 49"):
        wrap(bert, V)
    with pytest.raises(
        ArcmaskError, match=r"a BertModel cannot be wrapped: its get_output_embeddings\(\) gives no table"
    ):
        wrap(BertModel(bert.config), MASK)
    with pytest.raises(ArcmaskError, match="a BertForSequenceClassification cannot be wrapped"):
        wrap(BertForSequenceClassification(bert.config), MASK)
    with pytest.raises(ArcmaskError, match="the mask id is None"):
        wrap(bert, None)
    with pytest.raises(ArcmaskError, match="a Wrapped is a denoiser already"):
        wrap(wrap(bert, MASK), MASK)
    with pytest.raises(ArcmaskError, match="a Softcapped cannot be wrapped: it changes its logits after"):
        wrap(Softcapped(bert.config), MASK)
    wrap(Bare(bert.config), MASK)  # there are no ids to compare with


@torch.no_grad()
def test_the_id_of_padding_does_not_take_part_in_the_checks():
    """RoBERTa gives the id of padding no position of its own, so a row with it would differ from its embeddings."""
    model = masked_lm("roberta")
    ids = torch.randint(5, V, (2, 9), generator=torch.Generator().manual_seed(2))
    for mask_id in (0, 1):  # before padding, and the same id
        denoiser = wrap(model, mask_id)
        logits = denoiser.logits(denoiser.hidden(denoiser.table[ids]))
        torch.testing.assert_close(logits, model(input_ids=ids).logits, atol=1e-5, rtol=1e-5)


def test_a_causal_model_can_be_wrapped_for_what_it_is_worth():
    """A denoiser need not be a masked LM: Dream has the weights of a causal family, with full attention."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_embd=32, n_layer=1, n_head=2, n_positions=16)).eval()
    denoiser = wrap(model, MASK, shift=True)
    assert denoiser.max_length == 16
    assert denoiser.hidden(denoiser.table[tokens()]).shape == (2, 9, 32)
