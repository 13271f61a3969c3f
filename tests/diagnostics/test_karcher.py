"""Distances from the converged Fréchet mean: zero where one step is exact, the literal algorithm's elsewhere."""

import pytest
import torch
from literal import karcher_mean
from planted import certain, on_a_circle, random_predictions

from arcmask.diagnostics import karcher, karcher_distances


def test_two_points_need_one_step():
    # The flow starts at the first point, 60 degrees from the second, which has a quarter of the weight.
    found = karcher_distances(on_a_circle(20, 80), [certain([[0, 1]], [[0.75, 0.25]])])
    assert found.steps == [0, 1, 2, 3, 5]
    assert [at.mean for at in found.distance] == pytest.approx([15, 0, 0, 0, 0], abs=1e-5)
    assert found.residual < 1e-5


def test_one_candidate_needs_none():
    found = karcher_distances(on_a_circle(20, 80), [certain([[0]], [[1.0]])])
    assert found.largest == pytest.approx([0.0] * 5, abs=1e-5)
    assert found.euclidean.mean == pytest.approx(0, abs=1e-5)


def test_distances_agree_with_the_literal_algorithm():
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.7
    some = random_predictions(table)
    found = karcher_distances(table, [some], steps=(0, 1, 2))
    for place, count in enumerate((0, 1, 2)):
        direct = []
        for ids, probs in zip(some.candidates.ids, some.candidates.probs, strict=True):
            unit = table[ids] / table[ids].norm(dim=1, keepdim=True)
            direct.append((karcher_mean(unit, probs, 60) @ karcher_mean(unit, probs, count)).clamp(-1, 1).acos())
        direct = torch.stack(direct).rad2deg()
        assert found.distance[place].mean == pytest.approx(float(direct.mean()), rel=1e-3, abs=1e-3)
        assert found.largest[place] == pytest.approx(float(direct.max()), rel=1e-3, abs=1e-3)
    assert found.residual < 1e-5
    assert found.positions == 50


def test_more_positions_than_are_needed_are_thinned_evenly(monkeypatch):
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(karcher, "_POSITIONS", 10)
    found = karcher_distances(table, [random_predictions(table)])
    assert found.positions == 10
