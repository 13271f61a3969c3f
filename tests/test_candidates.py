"""Candidates: equal to a float64 softmax for all shapes of rows, without a second (M, V) tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arcmask.candidates import Candidates, top_candidates
from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask


def exact(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    probs = logits.double().softmax(-1)
    top = probs.topk(k)
    entropy = torch.special.entr(probs).sum(-1)
    return top.values / top.values.sum(-1, keepdim=True), top.indices, entropy


def rows(kind: str, vocabulary: int = 50258, dtype: torch.dtype = torch.float32) -> Tensor:
    logits = 3 * torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(1))
    if kind == "peaked":
        logits = torch.zeros(6, vocabulary)
        logits[torch.arange(6), torch.arange(6) * 7000] = 40.0
    elif kind == "flat":
        logits = torch.zeros(6, vocabulary)
    elif kind == "part minus infinity":
        logits[:, ::2] = -torch.inf
    elif kind == "all but one minus infinity":
        logits[:, 1:] = -torch.inf
    elif kind == "large":
        logits = 1e4 + 1000 * logits
    return logits.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "kind", ["ordinary", "peaked", "flat", "part minus infinity", "all but one minus infinity", "large"]
)
def test_entropy_and_probabilities_agree_with_float64(kind, dtype):
    logits = rows(kind, dtype=dtype)
    candidates = top_candidates(logits, 3)
    probs, _, entropy = exact(logits, 3)
    torch.testing.assert_close(candidates.entropy.double(), entropy, atol=1e-4, rtol=0)
    torch.testing.assert_close(candidates.probs.double(), probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(candidates.probs.sum(-1), torch.ones_like(candidates.entropy))


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(2, 900), st.integers(1, 8))
def test_ids_are_the_largest_logits_in_falling_order(seed, m, vocabulary, k):
    k = min(k, vocabulary)
    logits = torch.randn(m, vocabulary, generator=torch.Generator().manual_seed(seed))
    candidates = top_candidates(logits, k)
    assert torch.equal(candidates.ids, logits.topk(k).indices)
    assert candidates.probs.shape == (m, k)
    assert candidates.entropy.shape == (m,)


def test_ties_give_distinct_ids():
    candidates = top_candidates(torch.zeros(3, 1000), 8)
    assert all(len(set(row.tolist())) == 8 for row in candidates.ids)


def test_excluded_id_gets_no_probability_and_the_logits_are_left_alone():
    logits = rows("ordinary")
    logits[:, 50257] = 100.0
    before = logits.clone()
    candidates = top_candidates(logits, 3, exclude=50257)
    assert torch.equal(logits, before)
    without = top_candidates(logits[:, :-1].contiguous(), 3)
    assert torch.equal(candidates.ids, without.ids)
    torch.testing.assert_close(candidates.entropy, without.entropy)


def test_chosen_rows_equal_those_rows_of_all():
    logits = torch.randn(300, 9000, generator=torch.Generator().manual_seed(3))
    chosen = torch.tensor([299, 0, 17, 17, 150])
    part, whole = top_candidates(logits, 2, rows=chosen), top_candidates(logits, 2)
    assert torch.equal(part.ids, whole.ids[chosen])
    torch.testing.assert_close(part.entropy, whole.entropy[chosen])


def test_no_second_tensor_of_the_logits_size_is_made():
    logits = torch.randn(2048, 5000)
    with torch.profiler.profile(profile_memory=True) as profile:
        top_candidates(logits, 3)
    largest = max((event.cpu_memory_usage for event in profile.events()), default=0)
    assert 0 < largest <= logits.nbytes / 4


@pytest.mark.parametrize("k", [0, -1, 11])
def test_a_k_outside_the_vocabulary_is_an_error(k):
    with pytest.raises(ArcmaskError, match=rf"top_k is {k}, but must lie between 1 and .* 10"):
        top_candidates(torch.zeros(2, 10), k)


def test_logits_of_a_wrong_shape_are_an_error():
    with pytest.raises(ArcmaskError, match=r"\(M, V\).*\(2, 3, 10\)"):
        top_candidates(torch.zeros(2, 3, 10), 1)


@pytest.mark.parametrize("vocabulary", [7, 9000])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_row_without_candidates_is_an_error_that_names_the_row(value, vocabulary):
    logits = torch.randn(300, vocabulary, generator=torch.Generator().manual_seed(4))
    logits[17, :] = value
    logits[255, :] = value
    with pytest.raises(ArcmaskError, match=r"row 17 of the logits .*; 2 of 300 rows"):
        top_candidates(logits, 3)
    with pytest.raises(ArcmaskError, match=r"row 255 of the logits .*; 1 of 2 rows"):
        top_candidates(logits, 3, rows=torch.tensor([4, 255]))
    top_candidates(logits, 3, rows=torch.tensor([4, 16]))


@pytest.mark.parametrize("column", [0, 63, 64, 8999])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_such_logit_is_enough_unless_it_is_the_excluded_one(value, column):
    logits = torch.randn(5, 9000, generator=torch.Generator().manual_seed(4))
    logits[2, column] = value
    with pytest.raises(ArcmaskError, match="row 2 of the logits"):
        top_candidates(logits, 3)
    assert top_candidates(logits, 3, exclude=column).entropy.isfinite().all()


def test_a_row_with_one_possible_token_is_certain():
    logits = torch.full((1, 28), -torch.inf)
    logits[0, [5, 27]] = torch.tensor([-3e38, 3e38])  # 27 is the mask
    candidates = top_candidates(logits, 3, exclude=27)
    assert candidates.ids[0, 0] == 5
    assert candidates.probs.tolist() == [[1.0, 0.0, 0.0]]
    assert candidates.entropy.tolist() == [0.0]
    logits[0, 5] = -torch.inf
    with pytest.raises(ArcmaskError, match="row 0 of the logits"):
        top_candidates(logits, 3, exclude=27)


def test_feedback_refuses_candidates_of_such_a_row():
    """On a GPU `top_candidates` does not wait for the logits, so its candidates may come with a NaN."""
    probs, entropy = torch.full((2, 1), torch.nan), torch.tensor([0.5, torch.nan])
    candidates = Candidates(torch.zeros(2, 1, dtype=torch.long), probs, entropy)
    with pytest.raises(ArcmaskError, match="row 1 of the logits"):
        SoftMask().blend(torch.tensor([[3, 0, 3]]), candidates, torch.randn(4, 8), mask_id=3)
