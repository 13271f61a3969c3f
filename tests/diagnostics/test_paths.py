"""LERP's norm along its path, and the paths on a sphere, against the operators themselves."""

import math

import pytest
import torch
from planted import certain, on_a_circle, random_predictions

from arcmask import sphere
from arcmask.diagnostics import lerp_norms, sphere_paths
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence


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
