"""The confidence weight: the paper's formula and defaults, learnable within its range, or fixed."""

import math

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
