"""The batched procedure: masked positions get feedback, all others keep their own embedding, bit for bit."""

import literal
import pytest
import torch
from torch import Tensor

from arcmask import sphere
from arcmask.candidates import top_candidates
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask

V, D, MASK = 40, 24, 39


def batch(b: int = 3, length: int = 10, masked: float = 0.5, dtype: torch.dtype = torch.float32):
    """Return tokens (B, L), logits (B, L, V) that favour the mask itself, and a table (V, D)."""
    draw = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, V - 1, (b, length), generator=draw)
    tokens[torch.rand(b, length, generator=draw) < masked] = MASK
    logits = 2 * torch.randn(b, length, V, generator=draw, dtype=torch.float64)
    logits[..., MASK] = 50.0
    table = torch.randn(V, D, generator=draw, dtype=torch.float64)
    return tokens, logits.to(dtype), table.to(dtype)


def soft_mask(operator: str = "spherical", **settings) -> SoftMask:
    return SoftMask(operator, confidence=Confidence(centre=-2.0, steepness=2.0), **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_unmasked_positions_keep_their_embedding_bit_for_bit(operator_name, dtype):
    tokens, logits, table = batch(dtype=dtype)
    feedback = soft_mask(operator_name)(tokens, logits, table, MASK)
    assert feedback.embeddings.dtype == dtype
    assert torch.equal(feedback.embeddings[tokens != MASK], table[tokens[tokens != MASK]])


def test_masked_positions_follow_the_literal_algorithm():
    tokens, logits, table = batch(dtype=torch.float64)
    feedback = soft_mask(top_k=4, karcher_steps=2)(tokens, logits, table, MASK)
    without_mask = logits[tokens == MASK][:, :MASK]
    probs = without_mask.softmax(-1)
    top = probs.topk(4)
    entropy = torch.special.entr(probs).sum(-1)
    weight = 0.5 * torch.sigmoid(2.0 * (-entropy + 2.0))
    pi = top.values / top.values.sum(-1, keepdim=True)
    torch.testing.assert_close(feedback.weight, weight, atol=1e-6, rtol=0)
    expected = literal.batched(table[MASK], table[top.indices], pi, weight, 2)
    torch.testing.assert_close(feedback.embeddings[tokens == MASK], expected, atol=1e-5, rtol=0)


def test_record_carries_both_angles(operator_name):
    tokens, logits, table = batch(dtype=torch.float64)
    feedback = soft_mask(operator_name)(tokens, logits, table, MASK)
    candidates = top_candidates(logits[tokens == MASK], 3, exclude=MASK)
    points = table[candidates.ids]
    mask = table[MASK].expand(len(candidates), D)
    torch.testing.assert_close(feedback.angle, sphere.angle(mask, sphere.frechet_mean(points, candidates.probs)))
    mean = (candidates.probs[..., None] * points).sum(1)
    torch.testing.assert_close(feedback.euclidean_angle, sphere.angle(mask, mean))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_logits_and_masked_rows_give_the_same(operator_name, dtype):
    tokens, logits, table = batch(dtype=dtype)
    module = soft_mask(operator_name)
    full, rows = module(tokens, logits, table, MASK), module(tokens, logits[tokens == MASK], table, MASK)
    assert torch.equal(full.embeddings, rows.embeddings)
    assert torch.equal(full.weight, rows.weight)


@pytest.mark.parametrize("masked", [0.0, 1.0])
def test_no_masked_position_and_all_masked_work_with_finite_gradients(operator_name, masked):
    tokens, logits, table = batch(masked=masked)
    table.requires_grad_()
    module = soft_mask(operator_name)
    feedback = module(tokens, logits, table, MASK)
    count = int((tokens == MASK).sum())
    assert feedback.weight.shape == feedback.angle.shape == feedback.euclidean_angle.shape == (count,)
    feedback.embeddings.square().sum().backward()
    assert table.grad is not None
    assert table.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite() for p in module.parameters())


def test_gradients_of_table_and_scalars_agree_with_finite_differences():
    tokens, logits, table = batch(b=1, length=4, dtype=torch.float64)
    table.requires_grad_()
    module = soft_mask().double()
    names = [name for name, _ in module.named_parameters()]

    def run(table: Tensor, *values: Tensor) -> Tensor:
        settings = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, settings, (tokens, logits, table, MASK)).embeddings

    assert torch.autograd.gradcheck(run, (table, *module.parameters()))


def test_predictions_carry_no_gradient():
    tokens, logits, table = batch()
    logits.requires_grad_()
    module = soft_mask()
    module(tokens, logits, table, MASK).embeddings.sum().backward()
    assert logits.grad is None


def test_one_more_candidate_than_there_are_other_tokens_gives_the_mask_no_share():
    """With k = V the mask is among the candidates, at probability 0."""
    tokens, logits, table = batch(dtype=torch.float64)
    wide = soft_mask(top_k=V)(tokens, logits, table, MASK)
    narrow = soft_mask(top_k=V - 1)(tokens, logits, table, MASK)
    torch.testing.assert_close(wide.embeddings, narrow.embeddings)


def test_nothing_is_stored_on_the_module():
    tokens, logits, table = batch()
    module = soft_mask()
    before = dict(vars(module))
    module(tokens, logits, table, MASK)
    assert dict(vars(module)) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": torch.zeros(3, dtype=torch.long)}, r"tokens must have the shape \(B, L\)"),
        ({"logits": torch.zeros(3, 10, V - 1)}, r"V = 40, the table's rows, but they have \(3, 10, 39\)"),
        ({"logits": torch.zeros(3, 9, V)}, r"logits are for \(3, 9\) positions"),
        ({"logits": torch.zeros(1, V)}, "predictions for 1 positions, but 1[0-9] positions are masked"),
        ({"table": torch.zeros(V)}, r"table must have the shape \(V, D\)"),
        ({"mask_id": V}, "mask id is 40, but the table has rows 0 to 39"),
        ({"mask_id": -1}, "mask id is -1"),
    ],
)
def test_inputs_that_do_not_fit_are_an_error(change, message):
    tokens, logits, table = batch()
    inputs = {"tokens": tokens, "logits": logits, "table": table, "mask_id": MASK} | change
    with pytest.raises(ArcmaskError, match=message):
        soft_mask()(**inputs)


def test_settings_out_of_range_are_an_error():
    with pytest.raises(ArcmaskError, match="top_k is 0, but must lie between 1 and 1,000,000"):
        SoftMask(top_k=0)
    with pytest.raises(ArcmaskError, match="karcher_steps is -1"):
        SoftMask(karcher_steps=-1)
    with pytest.raises(ArcmaskError, match="unknown operator 'sperical'"):
        SoftMask("sperical")
    with pytest.raises(ArcmaskError, match=r"top_k is 41, but must lie between 1 and .* 40"):
        SoftMask(top_k=41)(*batch(), MASK)
