"""Norms by rank, along LERP's path and on the sphere, against scipy, numpy and the operators themselves."""

import math

import numpy as np
import pytest
import torch
from planted import certain, on_a_circle, random_predictions
from scipy.stats import spearmanr

from arcmask import sphere
from arcmask.diagnostics import lerp_norms, norms_by_rank, sphere_paths
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence


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


def test_between_equal_norms_the_chord_sinks_to_the_cosine_of_half_the_angle():
    found = lerp_norms(on_a_circle(120, 80, radius=3.0), 2, [certain([[0]], [[1.0]])])
    assert found.deepest.median == pytest.approx(0.5)
    assert found.ratio[25].mean == pytest.approx(0.5)
    assert (found.ratio[0].mean, found.ratio[-1].mean) == (pytest.approx(1), pytest.approx(1))
    assert found.thickness == pytest.approx(0, abs=1e-12)
    assert found.tokens.mean == pytest.approx(1)
    assert sum(found.deepest_histogram) == 1
    assert "sinks 50 % below" in found.reading


def test_norms_are_those_of_the_linear_operator():
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    some, confidence = random_predictions(table), Confidence(centre=-2.0)
    found = lerp_norms(table, 39, [some], confidence)
    mask, points, probs = table[39], table[some.candidates.ids], some.candidates.probs

    def ratios(weight: torch.Tensor) -> torch.Tensor:
        return OPERATORS["linear"](mask, points, probs, weight).norm(dim=1) / mask.norm()

    for weight, at in zip(found.weights, found.ratio, strict=True):
        direct = ratios(torch.full((len(some),), weight, dtype=torch.float64))
        assert at.mean == pytest.approx(float(direct.mean()))
        assert at.high == pytest.approx(float(direct.quantile(0.95)))
    own = confidence(some.candidates.entropy).detach().double()
    assert found.own_weight == pytest.approx(float(own.mean()))
    assert found.own_ratio.mean == pytest.approx(float(ratios(own).mean()))
    fine = torch.stack([ratios(torch.full((len(some),), w, dtype=torch.float64)) for w in torch.linspace(0, 1, 2001)])
    assert found.deepest.median == pytest.approx(float(fine.amin(0).quantile(0.5)), abs=1e-6)
    assert found.mean_norm.mean == pytest.approx(float(fine[-1].mean()))


def test_a_path_that_only_rises_is_deepest_where_it_begins():
    table = torch.tensor([[4.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64)
    assert lerp_norms(table, 1, [certain([[0]], [[1.0]])]).deepest.median == 1


def test_a_mask_without_length_is_an_error():
    with pytest.raises(ArcmaskError, match="the mask's embedding is zero"):
        lerp_norms(torch.tensor([[4.0, 0, 0], [0.0, 0, 0]]), 1, [certain([[0]], [[1.0]])])


def test_the_shell_is_that_of_the_tokens_without_the_mask():
    table = torch.diag(torch.tensor([2.0, 4.0, 0.5], dtype=torch.float64))
    found = lerp_norms(table, 2, [certain([[0]], [[1.0]])])
    assert (found.tokens.mean, found.thickness) == (pytest.approx(6), pytest.approx(2))


@pytest.mark.parametrize("degrees", [40, 73, 115])
def test_paths_start_at_the_mask_and_end_at_the_planted_angle(degrees):
    found = sphere_paths(math.radians(degrees), mean_norm=0.8)
    start = torch.tensor(found.paths["linear"][0])
    for name, norm in (("linear", 0.8), ("renormalized", 1.0), ("spherical", 1.0)):
        points = torch.tensor(found.paths[name], dtype=torch.float64)
        assert torch.equal(points[0].float(), start)
        assert float(points[-1].norm()) == pytest.approx(norm)
        assert math.degrees(sphere.angle(points[0], points[-1])) == pytest.approx(degrees)
    arc = torch.tensor(found.paths["spherical"], dtype=torch.float64)
    assert arc.norm(dim=1).tolist() == pytest.approx([1.0] * len(arc))
    turned = sphere.angle(arc[0], arc).rad2deg()
    assert turned.tolist() == pytest.approx([degrees * weight for weight in found.weights], abs=1e-5)


def test_the_sphere_has_a_path_of_every_operator():
    assert set(sphere_paths(1.0).paths) == set(OPERATORS) - {"none"}
    for name, path in sphere_paths(1.0, mean_norm=0.8).paths.items():
        norms = torch.tensor(path, dtype=torch.float64).norm(dim=1)
        assert OPERATORS[name].keeps_norm == bool((norms - 1).abs().max() < 1e-9), name


def test_the_reading_of_the_sphere_says_how_near_the_chord_comes_to_the_centre():
    reading = sphere_paths(math.radians(120)).reading
    assert "mean angle of 120 degrees" in reading
    assert "linear (LERP) 0.50, all others 1." in reading
