"""Measures of predictions at masked positions: planted and known values, and the literal algorithm's."""

import math

import pytest
import torch
from literal import karcher_mean
from planted import Constant, certain, on_a_circle, random_predictions

from arcmask.diagnostics import angles_over_time, confidence_weights, karcher_distances, predict, top_accuracy
from arcmask.feedback import Confidence

# Half of all tokens are 0, three tenths 1, two tenths 2; the model says 1, then 2, then 0.
ROWS = torch.tensor([0, 1, 2, 0, 1, 0, 2, 0, 1, 0]).repeat(40, 30)
DENOISER = Constant(torch.eye(5), torch.tensor([0.0, 2.0, 1.0, -1.0, 9.0]))


def test_shares_are_those_of_the_tokens_that_are_guessed():
    some = predict(DENOISER, ROWS, [0.3, 1.0], top_k=2)
    found = top_accuracy(some)
    assert (found.times, found.top_k, found.positions[1]) == ([0.3, 1.0], 2, ROWS.numel())
    assert found.top[1] == pytest.approx(0.3)
    assert found.among[1] == pytest.approx(0.5)
    assert found.frequent[1] == pytest.approx(0.5)
    assert found.frequent_id == [0, 0]
    masked = some[0].targets
    assert found.top[0] == pytest.approx(float((masked == 1).double().mean()))
    assert found.frequent[0] == pytest.approx(float((masked == 0).double().mean()))
    assert found.standard_error[1] == pytest.approx((0.3 * 0.7 / ROWS.numel()) ** 0.5)


def test_the_reading_is_of_the_time_nearest_to_a_half():
    found = top_accuracy(predict(DENOISER, ROWS, [0.1, 0.6, 0.9], top_k=2))
    assert f"At t = 0.6 the first candidate is right at {100 * found.top[1]:.1f} %" in found.reading


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
    monkeypatch.setattr("arcmask.diagnostics.predictions._CHUNK", 7 * 3 * 16)
    assert angles_over_time(table, 39, [random_predictions(table)]) == whole


def test_a_uniform_prediction_has_the_entropy_of_its_vocabulary():
    denoiser = Constant(torch.eye(9), torch.zeros(9))
    found = confidence_weights(predict(denoiser, torch.zeros(2, 100, dtype=torch.long), [0.2, 0.9]))
    assert found.entropy.mean == pytest.approx(math.log(8))
    # The paper's values at step 0: 0.5 sigmoid(10 / 1.5 (4 - H)).
    assert found.start.weight.mean == pytest.approx(0.5 / (1 + math.exp(-10 / 1.5 * (4 - math.log(8)))))
    assert found.learned is None
    assert sum(found.entropy_histogram) == sum(found.positions) == sum(found.start.histogram)


def test_weights_are_those_of_the_confidence():
    table = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    some = [random_predictions(table, seed=seed, time=time) for seed, time in ((0, 0.3), (1, 0.8))]
    start, learned = Confidence(centre=-2.0, steepness=3.0), Confidence(scale=0.9, centre=-3.0, steepness=1.0)
    found = confidence_weights(some, start, learned)
    for confidence, weights in ((start, found.start), (learned, found.learned)):
        direct = [confidence(at.candidates.entropy).detach() for at in some]
        assert weights.over_time == pytest.approx([float(at.mean()) for at in direct])
        assert weights.weight.mean == pytest.approx(float(torch.cat(direct).mean()))
        assert weights.weight.median == pytest.approx(float(torch.cat(direct).double().quantile(0.5)))
        assert weights.curve == pytest.approx(confidence(torch.tensor(found.entropy_edges)).tolist(), abs=1e-6)
    assert found.start.settings == pytest.approx({"scale": 0.5, "centre": -2.0, "steepness": 3.0})
    assert f"{found.start.weight.mean:.3f} with the initial scalars" in found.reading
    assert f"{found.learned.weight.mean:.3f} with the checkpoint's own" in found.reading


def test_certain_predictions_and_a_fixed_weight_have_histograms_too():
    found = confidence_weights([certain([[0], [1]], [[1.0], [1.0]])], Confidence(fixed=1.0))
    assert found.entropy.mean == 0
    assert found.start.settings == {"fixed": 1.0}
    assert (found.start.weight.low, found.start.weight.high, found.start.histogram[-1]) == (1, 1, 2)
    assert "with the initial scalars (fixed 1; the paper" in found.reading


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
    monkeypatch.setattr("arcmask.diagnostics.masked_positions._POSITIONS", 10)
    found = karcher_distances(table, [random_predictions(table)])
    assert found.positions == 10
