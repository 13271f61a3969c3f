"""The sphere's functions: exact at their limits, finite gradients everywhere, and the mean's defining properties."""

import itertools
import math

import literal
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arcmask import sphere

seeds = st.integers(0, 2**32)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pair_at(theta: float, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return two float64 vectors of different lengths with that angle between them."""
    u = sphere.unit(random(d, seed=seed))
    across = random(d, seed=seed + 1)
    across = sphere.unit(across - (across @ u) * u)
    return 3 * u, 0.2 * (math.cos(theta) * u + math.sin(theta) * across)


@pytest.mark.parametrize("d", [2, 16, 768])
@pytest.mark.parametrize("theta", [1e-4, 1e-3, 0.1, 1.0, math.pi / 2, 3.0, math.pi - 1e-3, math.pi - 1e-4])
def test_float32_angle_is_accurate_near_zero_and_near_pi(theta, d):
    for seed in range(20):
        u, v = (x.float() for x in pair_at(theta, d, seed))
        exact = sphere.angle(u.double(), v.double())
        error = (sphere.angle(u, v).double() - exact).abs()
        assert error < 1e-3 * min(exact, math.pi - exact)


def test_angle_agrees_with_acos_where_acos_is_safe():
    u, v = random(100, 8, seed=1), random(100, 8, seed=2)
    expected = torch.acos((sphere.unit(u) * sphere.unit(v)).sum(-1))
    torch.testing.assert_close(sphere.angle(u, v), expected, rtol=1e-10, atol=1e-10)


def test_angle_of_a_vector_with_itself_is_zero_and_with_its_opposite_pi():
    u = random(1000, 768, dtype=torch.float32)  # a tenth of these have a float32 <u, u> above 1
    assert torch.equal(sphere.angle(u, u), torch.zeros(1000))
    torch.testing.assert_close(sphere.angle(u, -2 * u), torch.full((1000,), math.pi))


@given(seeds, st.integers(2, 40))
def test_exp_undoes_log(seed, d):
    base, point = sphere.unit(random(6, d, seed=seed)), sphere.unit(random(6, d, seed=seed + 1))
    tangent = sphere.log_map(base, point)
    torch.testing.assert_close((tangent * base).sum(-1), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(tangent.norm(dim=-1), sphere.angle(base, point))
    torch.testing.assert_close(sphere.exp_map(base, tangent), point)


def test_exp_undoes_log_at_the_antipode_and_at_the_point_itself():
    base = sphere.unit(random(8, 5))
    for point in (base, -base):
        torch.testing.assert_close(sphere.exp_map(base, sphere.log_map(base, point)), point)


@pytest.mark.parametrize("theta", [1e-6, 1e-4, math.pi - 1e-4])
def test_float32_log_map_keeps_its_digits_near_the_ends(theta):
    u, v = (sphere.unit(x) for x in pair_at(theta, 64, 3))
    exact = sphere.log_map(u.float().double(), v.float().double())
    error = (sphere.log_map(u.float(), v.float()).double() - exact).norm() / exact.norm()
    assert error < 0.1 if theta == 1e-6 else error < 2e-3


@given(seeds, st.floats(0, 1))
def test_slerp_moves_at_an_even_pace_along_one_great_circle(seed, weight):
    start, end = sphere.unit(random(16, seed=seed)), sphere.unit(random(16, seed=seed + 1))
    at = sphere.slerp(start, end, torch.tensor(weight, dtype=torch.float64))
    whole = sphere.angle(start, end)
    torch.testing.assert_close(at.norm(), torch.ones_like(whole))
    torch.testing.assert_close(sphere.angle(start, at), weight * whole, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(sphere.angle(at, end), (1 - weight) * whole, atol=1e-9, rtol=1e-9)


def test_slerp_between_antipodes_takes_one_defined_arc():
    start = sphere.unit(random(7))
    half = sphere.slerp(start, -start, torch.tensor(0.5, dtype=torch.float64))
    torch.testing.assert_close(half.norm(), torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(half, sphere.orthogonal(start))


@given(seeds, st.integers(1, 8), st.integers(16, 64), st.integers(0, 5))
def test_mean_agrees_with_the_literal_algorithm(seed, k, d, steps):
    points = random(k, d, seed=seed) + random(1, d, seed=seed + 1)
    weights = random(k, seed=seed + 2).softmax(-1)
    expected = literal.karcher_mean(sphere.unit(points), weights, steps)
    torch.testing.assert_close(sphere.frechet_mean(points, weights, steps), expected, atol=1e-5, rtol=0)


@given(seeds, st.integers(2, 8), st.integers(2, 64))
def test_converged_mean_is_first_order_optimal(seed, k, d):
    centre = sphere.unit(random(1, d, seed=seed))
    points = sphere.unit(centre + 0.6 * sphere.unit(random(k, d, seed=seed + 1)))
    weights = random(k, seed=seed + 2).softmax(-1)
    mean = sphere.frechet_mean(points, weights, steps=200)
    pull = (weights[:, None] * sphere.log_map(mean.expand_as(points), points)).sum(0)
    assert pull.norm() < 1e-7


@given(seeds, st.integers(2, 8), st.integers(3, 64), st.integers(0, 5))
def test_objective_does_not_rise_within_a_quarter_sphere(seed, k, d, steps):
    centre = sphere.unit(random(1, d, seed=seed))
    points = sphere.unit(centre + 0.7 * sphere.unit(random(k, d, seed=seed + 1)))  # within 45 degrees of it
    weights = random(k, seed=seed + 2).softmax(-1)

    def objective(mean: Tensor) -> Tensor:
        return (weights * sphere.angle(mean.expand_as(points), points) ** 2).sum()

    assert objective(sphere.frechet_mean(points, weights, steps)) <= objective(points[0]) + 1e-12


def test_mean_of_one_point_or_of_equal_points_is_that_point():
    points = random(4, 1, 9)
    torch.testing.assert_close(sphere.frechet_mean(points, torch.ones(4, 1).double()), sphere.unit(points[:, 0]))
    same = points.expand(4, 5, 9)
    weights = random(4, 5).softmax(-1)
    torch.testing.assert_close(sphere.frechet_mean(same, weights), sphere.unit(points[:, 0]))


def test_mean_ignores_the_scale_of_its_points_and_rotates_with_them():
    points, weights = random(6, 4, 12), random(6, 4, seed=1).softmax(-1)
    mean = sphere.frechet_mean(points, weights)
    scale = random(6, 4, 1, seed=2).exp()
    torch.testing.assert_close(sphere.frechet_mean(scale * points, weights), mean)
    rotation = torch.linalg.qr(random(12, 12, seed=3)).Q
    torch.testing.assert_close(sphere.frechet_mean(points @ rotation, weights), mean @ rotation)


def test_mean_broadcasts_over_any_batch():
    points, weights = random(2, 3, 4, 5), random(4).softmax(-1)
    mean = sphere.frechet_mean(points, weights)
    assert mean.shape == (2, 3, 5)
    torch.testing.assert_close(mean[1, 2], sphere.frechet_mean(points[1, 2], weights))


@pytest.mark.parametrize("d", [2, 3, 8])
def test_gradients_agree_with_finite_differences(d):
    u, v, t = (random(4, d, seed=s).requires_grad_() for s in range(3))
    w = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    points, weights = (
        random(4, 3, d, seed=5).requires_grad_(),
        random(4, 3, seed=6).softmax(-1).requires_grad_(),
    )
    assert torch.autograd.gradcheck(sphere.angle, (u, v))
    assert torch.autograd.gradcheck(sphere.log_map, (u, v))
    assert torch.autograd.gradcheck(sphere.exp_map, (u, t))
    assert torch.autograd.gradcheck(sphere.slerp, (u, v, w))
    assert torch.autograd.gradcheck(sphere.frechet_mean, (points, weights))


def test_gradients_stay_exact_across_the_switch_from_series_to_formula():
    cosines = (1 - torch.logspace(-7, -1, 60, dtype=torch.float64)).requires_grad_()
    squares = torch.logspace(-7, 1, 60, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(sphere._arc, cosines, eps=1e-9, atol=1e-5)
    assert torch.autograd.gradcheck(sphere._cos_sinc, squares, eps=1e-8, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "scales",
    [
        (1.0, 1.0),
        *itertools.product((1e-15, 1e15), repeat=2),
        *itertools.product((1e-20, 1e20), repeat=2),
        (1e30, 1e30),
    ],
)
@pytest.mark.parametrize("end", ["same", "opposite", "close", "elsewhere"])
def test_values_and_gradients_are_finite_at_every_degenerate_pair_and_scale(dtype, scales, end):
    u = sphere.unit(random(50, 24, dtype=dtype))
    v = {"same": u, "opposite": -u, "close": u + 1e-7, "elsewhere": random(50, 24, seed=9, dtype=dtype)}[end]
    u, v = (scales[0] * u).requires_grad_(), (scales[1] * sphere.unit(v)).detach().requires_grad_()
    half = torch.full((50,), 0.5, dtype=dtype, requires_grad=True)
    weights = torch.tensor([0.5, 0.5], dtype=dtype)
    results = {
        "angle": sphere.angle(u, v),
        "log_map": sphere.log_map(u, v),
        "exp_map": sphere.exp_map(u, v),
        "slerp": sphere.slerp(u, v, half),
        "frechet_mean": sphere.frechet_mean(torch.stack([u, v], dim=1), weights),
    }
    for name, result in results.items():
        assert result.isfinite().all(), name
        gradients = torch.autograd.grad(result.sum(), (u, v, half), retain_graph=True, allow_unused=True)
        assert all(g.isfinite().all() for g in gradients if g is not None), name
        if name in ("exp_map", "slerp", "frechet_mean"):
            torch.testing.assert_close(result.norm(dim=-1), torch.ones(50, dtype=dtype), rtol=1e-5, atol=0)


def test_gradient_at_a_zero_tangent_is_the_identity():
    base = sphere.unit(random(5))
    tangent = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda t: sphere.exp_map(base, t), tangent)
    torch.testing.assert_close(jacobian, torch.eye(5, dtype=torch.float64) - torch.outer(base, base))


SCALES = [1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30]


@pytest.mark.parametrize("v_scale", SCALES)
@pytest.mark.parametrize("u_scale", SCALES)
@pytest.mark.parametrize("name", ["unit", "orthogonal", "angle", "log_map", "exp_map", "slerp", "frechet_mean"])
def test_float32_values_and_gradients_agree_with_float64_at_any_length(name, u_scale, v_scale):
    tangent, half, weights = random(40, 24, seed=3), torch.full((40,), 0.3), torch.tensor([0.6, 0.4])
    function = {
        "unit": lambda u, v: sphere.unit(u) + sphere.unit(v),
        "orthogonal": lambda u, v: sphere.orthogonal(u) + sphere.orthogonal(v) + 0 * (u + v),
        "angle": sphere.angle,
        "log_map": sphere.log_map,
        "exp_map": lambda u, v: sphere.exp_map(u, tangent.to(u.dtype)) + sphere.exp_map(v, 0.1 * tangent.to(u.dtype)),
        "slerp": lambda u, v: sphere.slerp(u, v, half.to(u.dtype)),
        "frechet_mean": lambda u, v: sphere.frechet_mean(torch.stack([u, v], dim=1), weights.to(u.dtype)),
    }[name]
    inputs = [(u_scale * random(40, 24, seed=1)).float(), (v_scale * random(40, 24, seed=2)).float()]
    results = []
    for dtype in (torch.float32, torch.float64):
        u, v = (vector.to(dtype).requires_grad_() for vector in inputs)
        value = function(u, v)
        direction = random(*value.shape, seed=7, dtype=dtype)
        gradients = torch.autograd.grad((value * direction).sum(), (u, v))
        # A gradient falls with the length, so their product is of the size of the value.
        results.append([value, gradients[0].double() * u_scale, gradients[1].double() * v_scale])
    for actual, exact in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), exact.double(), rtol=1e-4, atol=2e-5)


def test_unit_changes_no_digit_at_other_powers_of_two():
    vectors = random(200, 48, dtype=torch.float32)
    plain = vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    for exponent in (-90, -20, 0, 1, 60, 120):
        assert torch.equal(sphere.unit(2.0**exponent * vectors), plain)


def test_unit_takes_the_smallest_and_the_largest_numbers_and_zero():
    numbers = torch.finfo(torch.float32)
    for size in (1e-44, numbers.tiny, numbers.max):
        vector = torch.tensor([size, 0.0, -size])
        torch.testing.assert_close(sphere.unit(vector), torch.tensor([0.5, 0.0, 0.5]).sqrt().copysign(vector))
    zero = torch.zeros(3, requires_grad=True)
    sphere.unit(zero).sum().backward()
    assert torch.equal(sphere.unit(zero), zero)
    assert torch.equal(zero.grad, torch.ones(3))
