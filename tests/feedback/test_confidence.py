"""The confidence weight: the paper's formula and defaults, learnable within its range, or fixed."""

import math

import numpy as np
import pytest
import torch

from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence


def test_defaults_are_the_papers():
    confidence = Confidence()
    values = [x.item() for x in (confidence.scale, confidence.centre, confidence.steepness)]
    assert values == pytest.approx([0.5, -4.0, 10 / 1.5], rel=1e-6)
    assert sum(p.numel() for p in confidence.parameters()) == 3


@pytest.mark.parametrize("entropy", [0.0, 1.0, 3.9, 4.0, 4.1, 10.8])
def test_weight_follows_the_formula(entropy):
    expected = 0.5 / (1 + math.exp(-(10 / 1.5) * (-entropy + 4.0)))
    assert Confidence()(torch.tensor([entropy])).item() == pytest.approx(expected, rel=1e-5)


def test_weight_falls_with_entropy_and_stays_below_the_scale():
    weight = Confidence(scale=0.7, centre=-1.5, steepness=4.0)(torch.linspace(0, 11, 100))
    assert (weight.diff() <= 0).all()
    assert ((weight >= 0) & (weight <= 0.7)).all()


@pytest.mark.parametrize("centre", [-1e-3, -4.0, -300.0])
@pytest.mark.parametrize("steepness", [1e-3, 5.0, 300.0])
def test_settings_survive_their_parametrisation(centre, steepness):
    confidence = Confidence(scale=0.01, centre=centre, steepness=steepness)
    values = [x.item() for x in (confidence.scale, confidence.centre, confidence.steepness)]
    assert values == pytest.approx([0.01, centre, steepness], rel=1e-4)


def test_gradients_of_the_three_scalars_agree_with_finite_differences():
    confidence = Confidence(centre=-1.5, steepness=4.0).double()
    entropy = torch.linspace(0, 3, 7, dtype=torch.float64)
    parameters = dict(confidence.named_parameters())

    def weight(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(confidence, dict(zip(parameters, values, strict=True)), entropy)

    assert torch.autograd.gradcheck(weight, tuple(parameters.values()))


@pytest.mark.parametrize("fixed", [0.0, 0.3, 1.0])
def test_fixed_weight_is_constant_and_has_nothing_to_learn(fixed):
    confidence = Confidence(fixed=fixed)
    assert torch.equal(confidence(torch.tensor([0.0, 5.0])), torch.full((2,), fixed))
    assert list(confidence.parameters()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fixed": -0.1}, "fixed weight is -0.1, but must lie between 0 and 1"),
        ({"fixed": 1.5}, "fixed weight is 1.5"),
        ({"fixed": math.nan}, "fixed weight is nan"),
        ({"scale": 1.0}, "scale is 1.0, but must lie strictly between 0 and 1"),
        ({"scale": 0.0}, "scale is 0.0"),
        ({"centre": 0.5}, "centre is 0.5, but must be a number below 0"),
        ({"steepness": 0.0}, "steepness is 0.0, but must be a number above 0"),
    ],
)
def test_settings_out_of_range_are_an_error(settings, message):
    with pytest.raises(ArcmaskError, match=message):
        Confidence(**settings)


def weights_by_hand(entropy: np.ndarray, confidence: Confidence) -> np.ndarray:
    scale, centre, steepness = (x.item() for x in (confidence.scale, confidence.centre, confidence.steepness))
    return scale / (1 + np.exp(steepness * (entropy + centre)))


@pytest.mark.parametrize("scale", [0.2, 0.5, 0.95])
@pytest.mark.parametrize(("low", "high"), [(0.1, 3.2), (5.0, 7.5), (6.0, 6.01), (0.0, 40.0)])
def test_a_calibrated_confidence_has_the_papers_mean_weight_and_a_steepness_by_the_spread(scale, low, high):
    entropy = np.random.default_rng(0).uniform(low, high, 400)
    confidence = Confidence.calibrated(torch.from_numpy(entropy), scale=scale)
    assert confidence.scale.item() == pytest.approx(scale)
    first, third = np.percentile(entropy, [25, 75])
    assert confidence.steepness.item() == pytest.approx(np.clip(4 / (third - first), 1, 20), rel=1e-5)
    assert weights_by_hand(entropy, confidence).mean() == pytest.approx(0.135, abs=1e-4)


def test_what_is_given_to_a_calibration_is_kept():
    entropy = torch.linspace(1.0, 4.0, 50)
    assert Confidence.calibrated(entropy, steepness=3.0).steepness.item() == pytest.approx(3.0)
    confidence = Confidence.calibrated(entropy, centre=-2.0)
    assert confidence.centre.item() == pytest.approx(-2.0)
    assert confidence.steepness.item() == pytest.approx(4 / 1.5, rel=1e-4)
    wanted = Confidence.calibrated(entropy, mean_weight=0.3)
    assert weights_by_hand(entropy.numpy(), wanted).mean() == pytest.approx(0.3, abs=1e-4)


def test_a_scale_that_cannot_reach_the_mean_weight_is_refused():
    with pytest.raises(ArcmaskError, match=r"the scale 0.13 cannot have the mean 0.135 to which the centre is calib"):
        Confidence.calibrated(torch.ones(3), scale=0.13)
    for entropy in (torch.zeros(0), torch.tensor([1.0, math.nan])):
        with pytest.raises(ArcmaskError, match="one entropy or more, all of them finite"):
            Confidence.calibrated(entropy)


def test_a_model_without_entropy_gets_the_largest_centre_and_a_warning_with_the_true_mean():
    entropy = torch.full((20,), 0.01)
    with pytest.warns(UserWarning, match=r"so certain \(median entropy 0.01 nats\).*the mean weight 0.23") as caught:
        confidence = Confidence.calibrated(entropy)
    assert len(caught) == 1
    assert confidence.centre.item() == pytest.approx(-1e-3, rel=1e-3)
    assert weights_by_hand(entropy.numpy(), confidence).mean() == pytest.approx(0.23, abs=5e-3)


@pytest.mark.parametrize(
    ("entropy", "sentence"),
    [
        ([6.0, 6.5, 5.5], "all near 0 (median 8.1e-07), so feedback does nothing"),
        ([0.1, 2.0, 3.2], "all near their top (median 0.5, scale 0.5), so they do not depend on the entropy"),
        ([3.9, 4.0, 4.1], None),
        ([1.0, 7.0], None),
        ([], None),
    ],
)
def test_weights_that_are_all_near_an_end_are_told(entropy, sentence):
    confidence = Confidence(centre=-4.0)
    told = confidence.describe_extreme(confidence(torch.tensor(entropy)))
    assert (told is None) == (sentence is None)
    assert sentence is None or sentence in told
    assert Confidence(fixed=0.0).describe_extreme(torch.zeros(3)) is None
