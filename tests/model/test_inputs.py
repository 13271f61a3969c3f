"""The four inputs of a backbone, each against a direct sum over the table, and through the model."""

import pytest
import torch
from models import small_mdlm, some_tokens
from transformers import AutoModelForMaskedLM

from arcmask.candidates import top_candidates
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.model import Distribution, Embedded, Mixture, TokenIds, embed

V, D = 11, 6
DRAW = torch.Generator().manual_seed(0)
TABLE = torch.randn(V, D, generator=DRAW, dtype=torch.float64)
IDS = torch.randint(0, V, (2, 5), generator=DRAW)


def test_ids_are_looked_up_and_embeddings_passed_on():
    assert torch.equal(embed(TokenIds(IDS), TABLE), TABLE[IDS])
    embeddings = torch.randn(2, 5, D, dtype=torch.float64)
    assert embed(Embedded(embeddings), TABLE) is embeddings


def test_a_mixture_is_the_weighted_sum_of_its_rows():
    ids = torch.randint(0, V, (2, 5, 3), generator=DRAW)
    weights = torch.rand(2, 5, 3, generator=DRAW, dtype=torch.float64)
    torch.testing.assert_close(embed(Mixture(ids, weights), TABLE), (weights[..., None] * TABLE[ids]).sum(2))


def test_a_distribution_is_the_expected_row_and_a_one_hot_one_the_row_itself():
    probs = torch.rand(2, 5, V, generator=DRAW, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(embed(Distribution(probs), TABLE), (probs[..., None] * TABLE).sum(2))
    one_hot = torch.nn.functional.one_hot(IDS, V).double()
    torch.testing.assert_close(embed(one_hot, TABLE), TABLE[IDS])


def test_a_bare_tensor_is_taken_for_what_its_shape_says():
    assert torch.equal(embed(IDS, TABLE), TABLE[IDS])
    embeddings = torch.randn(2, 5, D, dtype=torch.float64)
    assert embed(embeddings, TABLE) is embeddings


def test_all_four_carry_gradients_to_the_table():
    table = TABLE.clone().requires_grad_()
    ids, weights = IDS[..., None].expand(2, 5, 2), torch.full((2, 5, 2), 0.5, dtype=torch.float64)
    for source in (
        TokenIds(IDS),
        Mixture(ids, weights),
        Distribution(torch.full((2, 5, V), 1 / V, dtype=torch.float64)),
    ):
        (gradient,) = torch.autograd.grad(embed(source, table).sum(), table)
        assert gradient.abs().sum() > 0


def test_a_shape_that_says_two_things_is_an_error_that_says_how_to_be_explicit():
    square = torch.randn(7, 7)
    tensor = torch.randn(1, 3, 7).softmax(-1)
    with pytest.raises(ArcmaskError, match=r"say which with Embedded\(tensor\) or Distribution\(tensor\)"):
        embed(tensor, square)
    assert torch.equal(embed(Embedded(tensor), square), tensor)
    torch.testing.assert_close(embed(Distribution(tensor), square), tensor @ square)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(2, 5), r"a float32 tensor of shape \(2, 5\) is none of"),
        (torch.zeros(2, 5, 7), r"embeddings \(B, L, 6\), a distribution \(B, L, 11\)"),
        (TokenIds(torch.zeros(2, 5)), "ids must be integers, but are float32"),
        (TokenIds(IDS[0]), r"ids must have the shape \(B, L\), but have \(5,\)"),
        (Embedded(torch.zeros(2, 5, 7)), r"embeddings must have the shape \(B, L, 6\)"),
        (Distribution(torch.zeros(2, 5, 7)), r"probs must have the shape \(B, L, 11\)"),
        (Mixture(IDS[..., None], torch.zeros(2, 5, 2)), r"ids \(2, 5, 1\) but weights \(2, 5, 2\)"),
    ],
)
def test_inputs_that_do_not_fit_are_an_error(source, message):
    with pytest.raises(ArcmaskError, match=message):
        embed(source, TABLE)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that transformers opened."""
    folder = tmp_path_factory.mktemp("model")
    small_mdlm().save(folder)
    return AutoModelForMaskedLM.from_pretrained(folder).eval()


@torch.no_grad()
@pytest.mark.parametrize("is_bare", [True, False])
def test_the_model_gives_the_logits_of_the_ids_for_every_input_that_stands_for_them(model, is_bare):
    tokens, vocabulary = some_tokens(), model.table.shape[0]
    one_hot = torch.nn.functional.one_hot(tokens, vocabulary).float()
    expected = model.logits(model.hidden(model.table[tokens]))
    split = Mixture(tokens[..., None].expand(-1, -1, 2), torch.tensor([0.25, 0.75]).expand(*tokens.shape, 2))
    kinds = {tokens: TokenIds, one_hot: Distribution, model.table[tokens]: Embedded}
    for source in [tensor if is_bare else kind(tensor) for tensor, kind in kinds.items()] + [split]:
        torch.testing.assert_close(model(source).logits, expected)
    assert torch.equal(model(input_ids=tokens).logits, model(inputs_embeds=model.table[tokens]).logits)


@torch.no_grad()
def test_the_model_gives_the_logits_of_linear_feedback_for_its_sparse_form(model):
    """The paper's input (B, L, k + 1): the mask and its candidates, with weights 1 - lambda and lambda * pi."""
    tokens, weight, k = some_tokens(), 0.3, 3
    masked, logits = tokens == model.mask_id, model(tokens).logits
    feedback = SoftMask("linear", top_k=k, confidence=Confidence(fixed=weight))
    expected = model(Embedded(feedback(tokens, logits, model.table, model.mask_id).embeddings)).logits
    logits[..., model.mask_id] = -torch.inf
    candidates = top_candidates(logits[masked], k)
    ids, weights = tokens[..., None].repeat(1, 1, k + 1), torch.zeros(*tokens.shape, k + 1)
    ids[..., 1:][masked], weights[..., 0] = candidates.ids, 1 - weight * masked
    weights[..., 1:][masked] = weight * candidates.probs
    torch.testing.assert_close(model(Mixture(ids, weights)).logits, expected)


def test_the_model_trains_on_every_kind_of_input(model):
    tokens, vocabulary = some_tokens(), model.table.shape[0]
    for source in (
        tokens,
        Mixture(tokens[..., None], torch.ones(*tokens.shape, 1)),
        torch.nn.functional.one_hot(tokens, vocabulary).float(),
    ):
        (gradient,) = torch.autograd.grad(model(source).logits.sum(), model.table)
        assert gradient[tokens.unique()].abs().sum(1).min() > 0


@pytest.mark.parametrize("source", [(), (IDS, torch.zeros(2, 5, 32))])
def test_the_model_takes_one_input(model, source):
    with pytest.raises(ArcmaskError, match="give either input_ids or inputs_embeds"):
        model(*source)


def test_a_shape_that_is_no_input_is_an_error_of_the_model(model):
    with pytest.raises(ArcmaskError, match=r"a float32 tensor of shape \(2, 5, 7\) is none of"):
        model(torch.zeros(2, 5, 7))
