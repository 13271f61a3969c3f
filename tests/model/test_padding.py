"""Padded rows: equal to their rows alone in every family, in hidden states, losses, entropies, bounds and curves."""

import pytest
import torch
from families import CAUSAL, MASKED, causal_lm, masked_lm
from models import small_mdlm
from public_layouts import write_public

import arcmask
from arcmask.diagnostics.gain import gain_curve
from arcmask.diagnostics.predictions import predict
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.feedback.calibration import draft_entropies
from arcmask.objective import TwoPass, likelihood_bound, sequence_losses
from arcmask.rows import PaddedRows, hidden_of, trimmed

FAMILIES = ("mdlm", "llada", "Dream", *MASKED, *CAUSAL)
LISTS = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14], [15, 16, 17, 18, 19]]
TIME = torch.tensor([0.4, 0.6, 0.9], dtype=torch.float64)


@pytest.fixture(scope="module", params=FAMILIES)
def denoiser(request, tmp_path_factory):
    """A small model of each family, in float64."""
    name = request.param
    if name == "mdlm":
        model = small_mdlm()
    elif name in ("llada", "Dream"):
        model = arcmask.load(write_public(name, tmp_path_factory.mktemp(name)))
    elif name in CAUSAL:
        model = arcmask.wrap(causal_lm(name), bidirectional=True, mask_token="<mask>")
    else:
        model = arcmask.wrap(masked_lm(name), 4)
    return model.double()


def rows() -> PaddedRows:
    return PaddedRows.of(LISTS, pad_id=3)


def masked() -> torch.Tensor:
    draw = torch.rand(3, 7, generator=torch.Generator().manual_seed(0)) < 0.6
    draw[:, 1] = True
    return draw


@torch.no_grad()
def test_hidden_states_are_those_of_the_rows_alone(denoiser):
    tokens = rows().tokens.masked_fill(masked() & rows().counted, denoiser.mask_id)
    together = hidden_of(denoiser, denoiser.table[tokens], rows().attention_mask)
    for row, length, states in zip(tokens, rows().lengths.tolist(), together, strict=True):
        alone = denoiser.hidden(denoiser.table[row[None, :length]])[0]
        torch.testing.assert_close(states[:length], alone, atol=1e-9, rtol=1e-9)
    other = tokens.masked_fill(~rows().attention_mask, 2)  # whatever the padding holds
    assert torch.equal(
        hidden_of(denoiser, denoiser.table[other], rows().attention_mask)[rows().attention_mask],
        together[rows().attention_mask],
    )


@pytest.mark.parametrize("feedback", [False, True])
def test_losses_and_gradients_are_those_of_the_rows_alone(denoiser, feedback):
    objective = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.4)))
    denoiser.zero_grad()
    together = objective(rows(), TIME, masked(), feedback=feedback)
    together.loss.backward()
    gradients = {name: p.grad.clone() for name, p in denoiser.named_parameters() if p.grad is not None}
    denoiser.zero_grad()
    total = 0
    for i, row in enumerate(LISTS):
        alone = objective(torch.tensor([row]), TIME[i : i + 1], masked()[i : i + 1, : len(row)], feedback=feedback)
        torch.testing.assert_close(together.per_sequence[i], alone.per_sequence[0], atol=1e-9, rtol=1e-9)
        alone.loss.backward()
        total += alone.masked
    assert together.masked == total == int((masked() & rows().counted).sum())
    for name, gradient in gradients.items():
        torch.testing.assert_close(dict(denoiser.named_parameters())[name].grad, gradient, atol=1e-7, rtol=1e-7)


@torch.no_grad()
def test_feedback_of_weight_zero_changes_nothing_and_a_positive_weight_only_masked_inputs(denoiser):
    plain = TwoPass(denoiser, None)(rows(), TIME, masked(), feedback=False)
    none = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.0)))(rows(), TIME, masked(), feedback=True)
    assert torch.equal(none.per_sequence, plain.per_sequence)
    some = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.5)))(rows(), TIME, masked(), feedback=True)
    hidden = masked() & rows().counted
    tokens = rows().tokens.masked_fill(hidden, denoiser.mask_id)
    assert torch.equal((some.feedback.embeddings != denoiser.table[tokens]).any(-1), hidden)
    assert not torch.allclose(some.per_sequence, plain.per_sequence, rtol=1e-6)


def test_what_is_measured_on_padded_rows_is_measured_on_their_tokens(denoiser):
    """Entropies, predictions, bounds and gain curves, each on the rows and on what the padding cannot change."""
    first, second = rows(), PaddedRows.of(LISTS, pad_id=2)
    assert torch.equal(draft_entropies(denoiser, first), draft_entropies(denoiser, second))
    ours, theirs = (predict(denoiser, some, [0.5, 1.0]) for some in (first, second))
    assert torch.equal(ours[1].targets, torch.tensor([token for row in LISTS for token in row]))
    assert all(torch.equal(a.candidates.ids, b.candidates.ids) for a, b in zip(ours, theirs, strict=True))
    objective = TwoPass(denoiser, None)
    losses, tokens = sequence_losses(objective, [first], ["plain"])
    nats = losses["plain"]
    bound = likelihood_bound(objective, [first], feedback=False)
    assert tokens.tolist() == [7, 3, 5]
    assert bound.tokens == 15
    assert bound.nats == pytest.approx(float(nats.sum()) / 15)
    residual = (nats - bound.nats * tokens) / 5
    assert bound.standard_error == pytest.approx(float(residual.std()) / 3**0.5)
    curve = gain_curve(denoiser, first, ["linear"], [0.0, 0.4])
    assert curve.plain == pytest.approx(bound.nats)
    fed = TwoPass(denoiser, SoftMask("linear", confidence=Confidence(fixed=0.4)))
    two_pass = likelihood_bound(fed, [first], feedback=True)
    assert curve.difference["linear"][1] == pytest.approx(two_pass.nats - bound.nats)


@pytest.mark.parametrize("feedback", [False, True])
def test_without_padding_losses_gradients_and_bounds_have_the_same_bits(denoiser, feedback):
    tensor = torch.tensor([row[:3] for row in LISTS])
    objective = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.4))).eval()  # without dropout
    results = []
    for same in (tensor, PaddedRows.of(tensor.tolist())):
        denoiser.zero_grad()
        result = objective(same, TIME, masked()[:, :3], feedback=feedback)
        result.loss.backward()
        gradients = [p.grad for p in denoiser.parameters() if p.grad is not None]
        bound = likelihood_bound(objective, [same], feedback=feedback)
        numbers = torch.tensor([bound.nats, bound.standard_error, bound.tokens], dtype=torch.float64)
        results.append([result.loss, result.per_sequence, numbers, *(gradient.clone() for gradient in gradients)])
    assert len(results[0]) > 10
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


def test_a_prompt_is_seen_but_never_masked_or_counted():
    denoiser = small_mdlm().double()
    given = PaddedRows.of(LISTS, prompts=[3, 1, 0], pad_id=3)
    everything = torch.ones(3, 7, dtype=torch.bool)
    objective = TwoPass(denoiser, None)
    result = objective(given, TIME, everything, feedback=False)
    assert result.masked == 4 + 2 + 5
    other = PaddedRows(given.tokens.clone(), given.lengths, given.prompts)
    other.tokens[0, 0] = 20
    changed = objective(other, TIME, everything, feedback=False)
    assert changed.per_sequence[0] != result.per_sequence[0]  # the prompt is seen
    assert torch.equal(changed.per_sequence[1:], result.per_sequence[1:])
    assert likelihood_bound(objective, [given], feedback=False).tokens == 11


def test_columns_that_are_padding_in_every_row_cost_nothing():
    wide = PaddedRows(torch.nn.functional.pad(rows().tokens, (0, 5)), rows().lengths, rows().prompts)
    short, hidden = trimmed(wide, torch.nn.functional.pad(masked(), (0, 5), value=True))
    assert torch.equal(short.tokens, rows().tokens)
    assert torch.equal(hidden, masked())
    tensor = torch.zeros(2, 4, dtype=torch.long)
    assert trimmed(tensor, tensor > 0)[0] is tensor


class Plain:
    """A denoiser of one's own that knows nothing of padding."""

    mask_id, max_length = 4, None
    table = torch.eye(20)

    def hidden(self, embeddings):
        self.shape = embeddings.shape
        return embeddings

    def logits(self, hidden_rows):
        return hidden_rows


def test_a_plain_denoiser_refuses_padded_rows_and_takes_others():
    denoiser = Plain()
    message = "the rows are padded, but hidden.. of the denoiser Plain takes no attention_mask; give rows of one length"
    with pytest.raises(ArcmaskError, match=message):
        TwoPass(denoiser, None)(rows(), TIME, masked(), feedback=False)
    equal = PaddedRows.of([[5, 6], [7, 8]])  # nothing is padded, so no mask is passed
    assert TwoPass(denoiser, None)(equal, TIME[:2], torch.ones(2, 2, dtype=torch.bool), feedback=False).masked == 4
