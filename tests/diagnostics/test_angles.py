"""Angles between the mask and the predicted mean: planted ones are found."""

import pytest
import torch
from literal import karcher_mean
from planted import Constant, certain, on_a_circle, random_predictions

from arcmask.diagnostics import angles_over_time, predict, predictions


def test_one_candidate_is_its_own_mean():
    found = angles_over_time(on_a_circle(60, 73), 2, [certain([[1]], [[1.0]]), certain([[0]], [[1.0]], time=0.7)])
    assert [at.mean for at in found.euclidean] == pytest.approx([73, 60])
    assert [at.mean for at in found.frechet] == pytest.approx([73, 60])
    assert (found.times, found.positions) == ([0.5, 0.7], [1, 1])
    assert found.euclidean_mean == pytest.approx(66.5)


def test_on_one_circle_the_frechet_mean_is_the_mean_of_angles_and_the_euclidean_is_not():
    # Two unit vectors at 40 and 100 degrees, a quarter and three quarters.
    found = angles_over_time(on_a_circle(100, 40), 2, [certain([[0, 1]], [[0.75, 0.25]])], karcher_steps=1)
    assert found.frechet_mean == pytest.approx(85)
    direction = 0.75 * on_a_circle(100)[0] + 0.25 * on_a_circle(40)[0]
    assert found.euclidean_mean == pytest.approx(float(torch.atan2(direction[1], direction[0]).rad2deg()))
    assert found.euclidean_mean != pytest.approx(85, abs=0.5)


def test_lengths_move_the_euclidean_mean_alone():
    table = on_a_circle(100, 40)
    table[0] *= 5
    before, after = (angles_over_time(t, 2, [certain([[0, 1]], [[0.5, 0.5]])]) for t in (on_a_circle(100, 40), table))
    assert after.frechet_mean == pytest.approx(before.frechet_mean)
    assert after.euclidean_mean > before.euclidean_mean + 10


def test_angles_agree_with_the_literal_algorithm():
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    some = random_predictions(table)
    found = angles_over_time(table, 39, [some], karcher_steps=2)
    mask = table[39] / table[39].norm()
    frechet, euclidean = [], []
    for ids, probs in zip(some.candidates.ids, some.candidates.probs, strict=True):
        unit = table[ids] / table[ids].norm(dim=1, keepdim=True)
        frechet.append(float((mask @ karcher_mean(unit, probs, 2)).acos().rad2deg()))
        mean = probs @ table[ids]
        euclidean.append(float((mask @ mean / mean.norm()).acos().rad2deg()))
    assert found.frechet_mean == pytest.approx(sum(frechet) / len(frechet), abs=1e-4)
    assert found.euclidean_mean == pytest.approx(sum(euclidean) / len(euclidean), abs=1e-8)
    assert found.frechet[0].median == pytest.approx(float(torch.tensor(frechet).quantile(0.5)), abs=1e-4)


def test_a_planted_angle_is_read_off_a_denoiser():
    logits = torch.tensor([9.0, 0.0, 0.0], dtype=torch.float64)  # nearly all on the first token, 73 degrees away
    denoiser = Constant(on_a_circle(73, 80), logits)
    some = predict(denoiser, torch.zeros(4, 50, dtype=torch.long), [0.2, 0.8], top_k=1)
    found = angles_over_time(denoiser.table, denoiser.mask_id, some)
    assert [at.mean for at in found.euclidean] == pytest.approx([73, 73])
    assert "is 73.0 degrees for the Euclidean mean" in found.reading
    assert "between 73.0 and 73.0" in found.reading


def test_blocks_change_nothing(monkeypatch):
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = angles_over_time(table, 39, [random_predictions(table)])
    monkeypatch.setattr(predictions, "_CHUNK", 7 * 3 * 16)
    assert angles_over_time(table, 39, [random_predictions(table)]) == whole
