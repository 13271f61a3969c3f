"""Entropies and weights: known ones for uniform and for certain predictions."""

import math

import pytest
import torch
from planted import Constant, certain, random_predictions

from arcmask.diagnostics import confidence_weights, predict
from arcmask.feedback import Confidence


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
    assert f"{found.start.weight.mean:.3f} at step 0" in found.reading
    assert f"and {found.learned.weight.mean:.3f} in the checkpoint" in found.reading


def test_certain_predictions_and_a_fixed_weight_have_histograms_too():
    found = confidence_weights([certain([[0], [1]], [[1.0], [1.0]])], Confidence(fixed=1.0))
    assert found.entropy.mean == 0
    assert found.start.settings == {"fixed": 1.0}
    assert (found.start.weight.low, found.start.weight.high, found.start.histogram[-1]) == (1, 1, 2)
    assert "at step 0 (fixed 1; paper" in found.reading
