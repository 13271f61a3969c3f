"""Every operator: its limits, its norm, its path (P1 to P3 of the paper), its gradients, its agreement with float64."""

import math

import literal
import pytest
import torch
from cases import make_case
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arcmask import sphere
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, find_operator

seeds = st.integers(0, 2**32)
widths = st.integers(16, 1024)
candidate_counts = st.integers(1, 8)
karcher_steps = st.integers(0, 5)
KEEP_NORM = sorted(name for name, record in OPERATORS.items() if record.keeps_norm)
# The directions that the paper's arc operators move to, from candidates, probabilities and Karcher steps.
TARGETS = {
    "spherical": sphere.frechet_mean,
    "spherical-euclidean": lambda candidates, probs, _: sphere.unit((probs[..., None] * candidates).sum(1)),
}


def target_of(name: str, candidates: Tensor, probs: Tensor, steps: int) -> Tensor:
    """Return the direction that an arc operator moves to, computed in float64 by the sphere's own functions."""
    return TARGETS[name](candidates.double(), probs.double(), steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_weight_zero_gives_the_mask_embedding_bit_for_bit(operator_name, dtype, seed, k, d, steps):
    mask, candidates, probs, weight = make_case(seed, k=k, d=d).to(dtype)
    result = OPERATORS[operator_name](mask, candidates, probs, torch.zeros_like(weight), steps)
    assert torch.equal(result, mask.expand(5, d))


@pytest.mark.parametrize("name", KEEP_NORM)
@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_weight_one_gives_the_mask_norm_times_a_direction(name, seed, k, d, steps):
    mask, candidates, probs, weight = make_case(seed, k=k, d=d)
    result = OPERATORS[name](mask, candidates, probs, torch.ones_like(weight), steps)
    torch.testing.assert_close(result.norm(dim=-1), mask.norm().expand(5), rtol=1e-5, atol=0)
    if name in TARGETS:
        assert (sphere.angle(result.double(), target_of(name, candidates, probs, steps)) < 1e-4).all()


@pytest.mark.parametrize("name", KEEP_NORM)
@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_norm_is_the_masks(name, seed, k, d, steps):
    mask, *rest = make_case(seed, k=k, d=d)
    result = OPERATORS[name](mask, *rest, steps)
    torch.testing.assert_close(result.norm(dim=-1), mask.norm().expand(5), rtol=1e-5, atol=0)


def test_linear_breaks_the_norm():
    mask, candidates, probs, _ = make_case(d=256)
    candidates = candidates * (mask.norm() / candidates.norm(dim=-1, keepdim=True))  # all on one shell
    result = OPERATORS["linear"](mask, candidates, probs, torch.full((5,), 0.5))
    assert (result.norm(dim=-1) < 0.9 * mask.norm()).all()


@pytest.mark.parametrize("name", TARGETS)
@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_path_is_the_great_circle_at_an_even_pace(name, seed, k, d, steps):
    mask, candidates, probs, weight = make_case(seed, k=k, d=d)
    result = OPERATORS[name](mask, candidates, probs, weight, steps).double()
    target = target_of(name, candidates, probs, steps)
    omega = sphere.angle(mask.double(), target)
    torch.testing.assert_close(
        sphere.angle(mask.double(), result), weight * omega, atol=1e-4, rtol=0, check_dtype=False
    )
    torch.testing.assert_close(sphere.angle(result, target), (1 - weight) * omega, atol=1e-4, rtol=0, check_dtype=False)
    # In the plane of the two ends: nothing is left after projecting on it.
    plane = torch.linalg.qr(torch.stack([mask.double().expand_as(target), target], dim=-1)).Q
    outside = result - (plane @ (plane.mT @ result[..., None]))[..., 0]
    assert (outside.norm(dim=-1) < 1e-5 * mask.norm()).all()


def test_renormalized_breaks_the_pace():
    mask, candidates, probs, _ = make_case(k=1, d=256)
    weight = torch.full((5,), 0.25)
    result = OPERATORS["renormalized"](mask, candidates, probs, weight)
    omega = sphere.angle(mask, candidates[:, 0])
    assert ((sphere.angle(mask, result) - weight * omega).abs() > 1e-2).all()


@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_spherical_agrees_with_the_literal_algorithm(seed, k, d, steps):
    inputs = make_case(seed, k=k, d=d)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        rounded = inputs.to(dtype)
        expected = literal.batched(*rounded, steps)
        difference = (OPERATORS["spherical"](*rounded, steps).double() - expected).abs().max()
        assert difference < bound * inputs.mask.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=seeds, k=st.integers(1, 8), d=st.integers(2, 15), steps=karcher_steps)
def test_wide_angles_and_few_dimensions_stay_finite_and_of_the_right_norm(operator_name, dtype, seed, k, d, steps):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.randn(d, generator=draw, dtype=dtype)
    candidates = torch.randn(4, k, d, generator=draw, dtype=dtype)
    candidates[0, -1] = -candidates[0, 0]
    candidates[1, 0] = -mask
    probs = torch.randn(4, k, generator=draw, dtype=dtype).softmax(-1).sort(descending=True).values
    weight = torch.rand(4, generator=draw, dtype=dtype)
    result = OPERATORS[operator_name](mask, candidates, probs, weight, steps)
    assert result.isfinite().all()
    if operator_name in KEEP_NORM:
        torch.testing.assert_close(result.norm(dim=-1), mask.norm().expand(4), rtol=1e-5, atol=0)


@given(seed=seeds, d=st.integers(2, 32), gap=st.floats(-2, -0.5))
def test_in_float64_wide_angles_are_accurate_too(seed, d, gap):
    """Two candidates are almost opposite to each other, and the mask is almost opposite to their mean."""
    draw = torch.Generator().manual_seed(seed)
    first = sphere.unit(torch.randn(d, generator=draw, dtype=torch.float64))
    across = sphere.orthogonal(first)
    turn = math.pi - 10**gap
    second = math.cos(turn) * first + math.sin(turn) * across
    candidates, probs = torch.stack([first, second])[None], torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    # The mean of two points is 0.3 of the way along their arc, for any number of steps from 1 on.
    mean = math.cos(0.3 * turn) * first + math.sin(0.3 * turn) * across
    normal = -math.sin(0.3 * turn) * first + math.cos(0.3 * turn) * across
    mask = 2 * (math.cos(turn) * mean + math.sin(turn) * normal)
    weight = torch.tensor([0.4], dtype=torch.float64)
    expected = 2 * (math.cos(0.6 * turn) * mean + math.sin(0.6 * turn) * normal)
    result = OPERATORS["spherical"](mask, candidates, probs, weight, 3)[0]
    torch.testing.assert_close(result, expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize(("k", "d", "steps"), [(1, 2, 3), (3, 4, 0), (3, 6, 3), (8, 5, 5)])
def test_gradients_agree_with_finite_differences(operator_name, k, d, steps):
    inputs = [x.requires_grad_() for x in make_case(1, k=k, d=d, dtype=torch.float64)]
    assert torch.autograd.gradcheck(lambda *x: OPERATORS[operator_name](*x, steps), inputs)


def degenerate(kind: str) -> list[Tensor]:
    mask, candidates, probs, weight = make_case(2, d=48)
    if kind == "mask equals a candidate":
        candidates[:, 0] = mask
    elif kind == "mask equals the mean":
        candidates[:] = mask
    elif kind == "mask antipodal to the mean":
        candidates[:] = -mask
        weight[:] = 0.5
    elif kind == "two identical candidates":
        candidates[:, 1] = candidates[:, 0]
    elif kind == "antipodal candidates":
        candidates[:, 1] = -candidates[:, 0]
    elif kind == "one probability exactly one":
        probs[:] = torch.tensor([1.0, 0.0, 0.0])
    elif kind == "weight zero":
        weight[:] = 0
    elif kind == "weight one":
        weight[:] = 1
    elif kind == "a candidate of zero":
        candidates[:, 0] = 0
    elif kind == "a mask of zero":
        mask[:] = 0
    elif kind == "no positions":
        candidates, probs, weight = candidates[:0], probs[:0], weight[:0]
    elif kind == "tiny and huge":
        mask, candidates = mask * 1e-8, candidates * 1e8
    elif kind == "huge and tiny":
        mask, candidates = mask * 1e8, candidates * 1e-8
    return [x.requires_grad_() for x in (mask, candidates, probs, weight)]


@pytest.mark.parametrize(
    "kind",
    [
        "mask equals a candidate",
        "mask equals the mean",
        "mask antipodal to the mean",
        "two identical candidates",
        "antipodal candidates",
        "one probability exactly one",
        "weight zero",
        "weight one",
        "a candidate of zero",
        "a mask of zero",
        "no positions",
        "tiny and huge",
        "huge and tiny",
    ],
)
def test_degenerate_inputs_have_finite_values_and_gradients(operator_name, kind):
    inputs = degenerate(kind)
    result = OPERATORS[operator_name](*inputs)
    assert result.isfinite().all()
    for gradient in torch.autograd.grad(result.sum(), inputs, allow_unused=True):
        assert gradient is None or gradient.isfinite().all()
    if operator_name in KEEP_NORM and kind != "a mask of zero":
        mask = inputs[0]
        torch.testing.assert_close(result.norm(dim=-1), mask.norm().expand(len(result)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scales", [(1e-15, 1e15), (1e15, 1e-15), (1e-15, 1e-15), (1e15, 1e15)])
def test_values_are_finite_for_norms_of_any_size(operator_name, scales):
    mask, candidates, probs, weight = make_case(6, d=48)
    result = OPERATORS[operator_name](scales[0] * sphere.unit(mask), scales[1] * sphere.unit(candidates), probs, weight)
    assert result.isfinite().all()
    if operator_name in KEEP_NORM:
        torch.testing.assert_close(result.norm(dim=-1), torch.full((5,), scales[0]), rtol=1e-5, atol=0)


def test_gradient_at_weight_zero_is_the_arcs_own_speed():
    """The last-bit correction at weight 0 is a constant: d|move|/d weight is still r_m * Omega."""
    mask, candidates, probs, weight = make_case(3, m=1, dtype=torch.float64)
    for name in TARGETS:
        jacobian = torch.autograd.functional.jacobian(
            lambda w, name=name: OPERATORS[name](mask, candidates, probs, w), torch.zeros_like(weight)
        )
        omega = sphere.angle(mask, target_of(name, candidates, probs, 3))
        torch.testing.assert_close(jacobian[0, :, 0].norm(), mask.norm() * omega[0])


def test_autocast_does_not_lower_the_precision(operator_name):
    inputs = make_case(4, d=64)
    plain = OPERATORS[operator_name](*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(OPERATORS[operator_name](*inputs), plain)


def test_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ArcmaskError, match=r"unknown operator 'slurp'.*linear, none, renormalized, spherical"):
        find_operator("slurp")


@pytest.mark.parametrize("wrong", range(4))
def test_mismatched_shapes_are_an_error(operator_name, wrong):
    inputs = list(make_case())
    inputs[wrong] = inputs[wrong][..., :-1]
    with pytest.raises(ArcmaskError, match=r"an operator takes mask \(D,\)"):
        OPERATORS[operator_name](*inputs)


def test_negative_steps_are_an_error(operator_name):
    with pytest.raises(ArcmaskError, match="is -1, but must be 0 or more"):
        OPERATORS[operator_name](*make_case(), steps=-1)


def test_steps_matter_only_to_operators_that_say_so(operator_name):
    inputs = make_case(7, k=5)
    first, second = (OPERATORS[operator_name](*inputs, steps) for steps in (0, 3))
    assert torch.equal(first, second) != OPERATORS[operator_name].uses_steps


@given(seed=seeds, k=candidate_counts, d=widths, steps=karcher_steps)
def test_the_operators_own_angle_is_the_angle_to_the_frechet_mean(operator_name, seed, k, d, steps):
    """The embeddings are the same bit for bit with and without the angle."""
    inputs = make_case(seed, k=k, d=d)
    embeddings, angle = OPERATORS[operator_name].blend(*inputs, steps, angle=True)
    assert torch.equal(embeddings, OPERATORS[operator_name](*inputs, steps))
    if angle is not None:
        expected = sphere.angle(inputs.mask, sphere.frechet_mean(inputs.candidates, inputs.probs, steps))
        torch.testing.assert_close(angle, expected, atol=2e-6, rtol=0)


def test_near_the_mask_the_operators_own_angle_loses_only_a_few_digits(operator_name):
    mask, candidates, probs, weight = make_case(8, d=256)
    for gap in (0.0, 1e-4, 1e-3, 1e-2):
        near = mask + gap * mask.norm() * sphere.unit(candidates)
        _, angle = OPERATORS[operator_name].blend(mask, near, probs, weight, 3, angle=True)
        if angle is not None:
            expected = sphere.angle(mask, sphere.frechet_mean(near, probs))
            torch.testing.assert_close(angle, expected, atol=1e-3, rtol=0)
