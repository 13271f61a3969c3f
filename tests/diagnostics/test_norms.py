"""Norms against rank: planted trends are found, and what is computed agrees with scipy and numpy."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from arcmask.diagnostics import norms_by_rank
from arcmask.errors import ArcmaskError


def table_with(norms: torch.Tensor, mask: float = 1.0) -> torch.Tensor:
    """Random directions with these norms, and the mask behind them."""
    directions = torch.randn(len(norms) + 1, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths = torch.cat([norms.double(), torch.tensor([mask], dtype=torch.float64)])
    return directions / directions.norm(dim=1, keepdim=True) * lengths.unsqueeze(1)


FALLING = torch.arange(100, 0, -1)  # counts, the first token the most frequent


def test_equal_norms_are_a_shell():
    found = norms_by_rank(2.0 * torch.eye(5), 4, torch.tensor([5, 4, 3, 2]))
    assert found.variation == 0
    assert found.rank_correlation is None
    assert (found.norm.mean, found.mask, found.mask_over_mean, found.mask_above) == (2, 2, 1, 0)
    assert sum(found.histogram_counts) == 4


@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_trend_is_found(sign):
    trend = 2 + sign * 0.01 * torch.arange(100)
    found = norms_by_rank(table_with(trend), 100, FALLING)
    assert found.rank_correlation == pytest.approx(sign)
    assert found.norms == pytest.approx(trend.tolist())
    assert found.ranks == list(range(1, 101))


def test_the_order_is_that_of_frequency_not_of_ids():
    order = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    found = norms_by_rank(table_with(1 + 0.01 * torch.arange(100)[order]), 100, FALLING[order])
    assert found.rank_correlation == pytest.approx(1)


def test_correlation_and_variation_agree_with_scipy_and_numpy():
    draw = torch.Generator().manual_seed(3)
    norms, counts = 1 + torch.rand(100, generator=draw), torch.randint(1, 20, (100,), generator=draw)
    found = norms_by_rank(table_with(norms), 100, counts)
    assert found.rank_correlation == pytest.approx(spearmanr(-counts.numpy(), norms.numpy()).statistic)
    assert found.variation == pytest.approx(np.std(norms.numpy()) / np.mean(norms.numpy()), rel=1e-5)


def test_where_the_mask_stands():
    found = norms_by_rank(table_with(torch.arange(1, 101) / 50, mask=1.51), 100, FALLING)
    assert found.mask == pytest.approx(1.51)
    assert found.mask_over_mean == pytest.approx(1.51 / 1.01)
    assert found.mask_above == 0.75


def test_a_mask_that_is_not_last_and_that_occurs_in_the_text_is_no_token():
    found = norms_by_rank(torch.diag(torch.tensor([1.0, 9.0, 1.0])), 1, torch.tensor([3, 100, 2]))
    assert (found.tokens, found.unseen, found.mask, found.largest) == (2, 0, 9, 1)


def test_tokens_that_never_occur_are_left_out():
    counts = FALLING.clone()
    counts[50:] = 0
    norms = torch.ones(100)
    norms[50:] = 7
    found = norms_by_rank(table_with(norms), 100, counts[:60])  # ids beyond the corpus's do not occur either
    assert (found.tokens, found.unseen) == (50, 50)
    assert found.norm.mean == pytest.approx(1)


def test_without_frequencies_the_norms_are_known_and_the_trend_is_not():
    found = norms_by_rank(table_with(1 + 0.01 * torch.arange(100)), 100)
    assert (found.tokens, found.unseen, found.rank_correlation, found.ranks, found.bins) == (100, None, None, [], [])
    assert "rank correlation" not in found.reading


def test_of_a_large_vocabulary_some_tokens_are_kept_and_bins_cover_all():
    counts = torch.arange(30000, 0, -1)
    found = norms_by_rank(table_with(1 + 1e-4 * torch.arange(30000)), 30000, counts)
    assert len(found.ranks) <= 2048
    assert (found.ranks[:3], found.ranks[-1]) == ([1, 2, 3], 30000)
    assert found.ranks == sorted(set(found.ranks))
    assert found.norms == pytest.approx([1 + 1e-4 * (rank - 1) for rank in found.ranks])
    firsts, lasts = [first for first, _, _ in found.bins], [last for _, last, _ in found.bins]
    assert (firsts[0], lasts[-1]) == (1, 30000)
    assert firsts[1:] == [last + 1 for last in lasts[:-1]]
    for first, last, at in found.bins:
        assert at.median == pytest.approx(1 + 1e-4 * ((first + last) / 2 - 1))


def test_the_reading_holds_the_numbers():
    found = norms_by_rank(table_with(2 + 0.01 * torch.arange(100), mask=1.0), 100, FALLING)
    assert f"a coefficient of variation of {found.variation:.3f}" in found.reading
    assert "frequency rank is +1.00" in found.reading
    assert f"{found.mask_over_mean:.2f} times the mean, and 0 % of the tokens" in found.reading


def test_frequencies_of_a_larger_vocabulary_are_refused():
    with pytest.raises(ArcmaskError, match="frequencies of 9 tokens, but the table has 5"):
        norms_by_rank(torch.eye(5), 4, torch.ones(9))
    with pytest.raises(ArcmaskError, match="no token occurs in the text"):
        norms_by_rank(torch.eye(5), 4, torch.zeros(5))
