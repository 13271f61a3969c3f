"""The unit sphere: angles, the log and exp maps, the Fréchet mean, SLERP, and what operators need of them.

This module knows nothing of tokens or models. Its functions take vectors of any non-zero length and use only their
direction. The coefficient functions and `along_arc`, which operators call in every step, square the lengths: in float32
these must lie between 1e-18 and 1e18. All keep the dtype of their input. Gradients are finite at coincident points, at
antipodes and at a zero tangent, for two reasons:

- Limits are exact, without an epsilon. theta / sin(theta) as a function of the cosine, and cos and sin(x) / x as
  functions of x squared, are smooth where acos, sqrt and the divisions inside them are not. `_Arc` and `_CosSinc` are
  these functions with their true derivatives.
- Between antipodes every great circle is a shortest path. `log_map` and `slerp` take a fixed one (`orthogonal`). In the
  Fréchet mean an antipodal point does not pull, which is the average over all great circles.

Shapes: M rows, D dimensions, K points; `...` is any batch.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Arc(torch.autograd.Function):
    """Map cos(theta) to theta squared and theta / sin(theta): smooth at theta = 0, infinite at theta = pi."""

    @staticmethod
    def forward(cosine: Tensor) -> tuple[Tensor, Tensor]:
        theta = cosine.clamp(-1, 1).acos_()
        squared = theta.square()
        return squared, theta.mul_(1 / math.pi).sinc_().reciprocal_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad_squared: Tensor, grad_ratio: Tensor) -> Tensor:
        cosine, ratio = ctx.saved_tensors
        # d(ratio)/d(cos) = (cos * ratio - 1) / (1 - cos^2), which cancels near cos = 1; there, its Taylor series.
        y = 1 - cosine
        near = y < 0.01
        far_slope = (cosine * ratio - 1) / torch.where(near, 1.0, y * (1 + cosine))
        near_slope = -1 / 3 - y * (4 / 15 + y * (6 / 35 + y * (32 / 315 + y * (40 / 693))))
        return torch.where(near, near_slope, far_slope) * grad_ratio - 2 * ratio * grad_squared


class _CosSinc(torch.autograd.Function):
    """Map s to cos(sqrt(s)) and sin(sqrt(s)) / sqrt(s): smooth at s = 0, where rounding may make s negative."""

    @staticmethod
    def forward(squared: Tensor) -> tuple[Tensor, Tensor]:
        root = squared.clamp_min(0).sqrt_()
        cosine = root.cos()
        return cosine, root.mul_(1 / math.pi).sinc_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, grad_cosine: Tensor, grad_sinc: Tensor) -> Tensor:
        squared, cosine, sinc = ctx.saved_tensors
        near = squared < 0.01
        far_slope = (cosine - sinc) / torch.where(near, 1.0, 2 * squared)
        near_slope = -1 / 6 + squared * (1 / 60 - squared * (1 / 1680 - squared * (1 / 90720)))
        return torch.where(near, near_slope, far_slope) * grad_sinc - 0.5 * sinc * grad_cosine


class _Gram(torch.autograd.Function):
    """Map points (M, K, D) to inner products (M, K, K). The gradient is one product; autograd would take two."""

    @staticmethod
    def forward(points: Tensor) -> Tensor:
        return torch.bmm(points, points.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (points,) = ctx.saved_tensors
        return torch.bmm((grad + grad.mT).contiguous(), points)


_arc: Callable[[Tensor], tuple[Tensor, Tensor]] = _Arc.apply
_cos_sinc: Callable[[Tensor], tuple[Tensor, Tensor]] = _CosSinc.apply
_gram: Callable[[Tensor], Tensor] = _Gram.apply


def antipodal(cosine: Tensor) -> Tensor:
    """Return where a cosine is -1 up to the rounding of an inner product, so that no arc is the shortest one."""
    return cosine < -1 + 8 * torch.finfo(cosine.dtype).eps


def unit(vector: Tensor) -> Tensor:
    """Scale vectors (..., D) to length one; a zero vector stays zero."""
    vector = _moderate(vector)
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(length > 0, length, 1.0)


def _moderate(vector: Tensor) -> Tensor:
    """Scale vectors (..., D) so that their squares neither overflow nor underflow.

    The factor is a power of two, so no digit changes. It is a constant: only the direction of the result matters.
    """
    constant = vector.detach()
    largest = torch.maximum(constant.amax(-1, keepdim=True), -constant.amin(-1, keepdim=True))
    scale = torch.where(largest > 0, torch.frexp(largest).mantissa / largest, 1.0)
    tiny = torch.finfo(vector.dtype).tiny
    return vector * scale.clamp(tiny, 1 / tiny)


def orthogonal(vector: Tensor) -> Tensor:
    """Return a unit vector (..., D) orthogonal to each vector (..., D), without gradient.

    It is the coordinate axis with the smallest component, made orthogonal. The choice is a convention, so it has no
    derivative.
    """
    return _orthogonal(unit(vector.detach()))


@torch.no_grad()
def _orthogonal(direction: Tensor) -> Tensor:
    """Return what `orthogonal` does, for unit vectors (..., D)."""
    if direction.shape[-1] < 2:
        return torch.zeros_like(direction)
    axis = torch.zeros_like(direction).scatter_(-1, direction.abs().argmin(-1, keepdim=True), 1.0)
    across = axis - (axis * direction).sum(-1, keepdim=True) * direction
    return across / torch.linalg.vector_norm(across, dim=-1, keepdim=True)


def angle(u: Tensor, v: Tensor) -> Tensor:
    """Return the angle (...) in [0, pi] between u and v (..., D), accurate at both ends (Kahan's half-angle form).

    >>> import torch
    >>> from arcmask import sphere
    >>> sphere.angle(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]))
    tensor(1.5708)
    """
    u, v = unit(u), unit(v)
    return 2 * torch.atan2(torch.linalg.vector_norm(u - v, dim=-1), torch.linalg.vector_norm(u + v, dim=-1))


def log_map(base: Tensor, point: Tensor) -> Tensor:
    """Return the tangent (..., D) at `base` whose geodesic reaches `point` (Eq. 2); its length is the angle."""
    base, point = unit(base), unit(point)
    theta = angle(base, point).unsqueeze(-1)
    # The part of `point` orthogonal to `base`. Subtracting base first (or adding it, on the far side) keeps the digits
    # that point - <point, base> base would cancel.
    near = (base * point).sum(-1, keepdim=True) >= 0
    gap = point - torch.where(near, base, -base)
    across = gap - (gap * base).sum(-1, keepdim=True) * base
    length = torch.linalg.vector_norm(across, dim=-1, keepdim=True)
    has_direction = length > torch.finfo(base.dtype).tiny
    ratio = torch.where(has_direction, theta / torch.where(has_direction, length, 1.0), 1.0)
    return torch.where(has_direction | near, ratio * across, theta * orthogonal(base))


def exp_map(base: Tensor, tangent: Tensor) -> Tensor:
    """Return the unit vector (..., D) reached from `base` along `tangent` (..., D) (Eq. 3)."""
    squared = (tangent * tangent).sum(-1, keepdim=True).clamp_max(torch.finfo(tangent.dtype).max)
    cosine, sinc = _cos_sinc(squared)
    return unit(cosine * unit(base) + sinc * tangent)


def slerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """Return the unit vector (..., D) at the share `weight` (...) of the arc from start to end (..., D) (Eq. 6).

    >>> import torch
    >>> from arcmask import sphere
    >>> sphere.slerp(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor(0.5))
    tensor([0.7071, 0.7071])
    """
    return exp_map(start, weight.unsqueeze(-1) * log_map(start, end))


def frechet_mean(points: Tensor, weights: Tensor, steps: int = 3) -> Tensor:
    """Return the mean direction (..., D) of points (..., K, D) after `steps` of Karcher flow (Algorithm 2).

    >>> import torch
    >>> from arcmask import sphere
    >>> sphere.frechet_mean(torch.eye(2), torch.tensor([0.5, 0.5]))
    tensor([0.7071, 0.7071])
    """
    *batch, k, d = points.shape
    points = _moderate(points.reshape(-1, k, d))
    coefficients = frechet_coefficients(points, weights.expand(*batch, k).reshape(-1, k), steps)
    return unit(combine(coefficients, points)).reshape(*batch, d)


def combine(coefficients: Tensor, points: Tensor) -> Tensor:
    """Return the sums (M, D) of points (M, K, D) with coefficients (M, K)."""
    return torch.bmm(coefficients.unsqueeze(1), points).squeeze(1)


def frechet_coefficients(points: Tensor, weights: Tensor, steps: int) -> Tensor:
    """Return coefficients (M, K) whose sum over the raw points (M, K, D) is their Fréchet mean, of length one.

    The flow starts at the first point and stays in the span of the points. So K coefficients and the matrix of the
    cosines replace D coordinates. After one matrix product each step costs K^2 instead of K * D.
    """
    cosines, scale = _cosines(points)
    weights = weights.mT.contiguous()
    mean = torch.zeros_like(weights)
    mean[0] = 1.0
    to_mean = cosines[0]  # the cosine of each point with the mean
    for _ in range(steps):
        opposite = antipodal(to_mean)
        pull = torch.where(opposite, 0.0, weights * _arc(torch.where(opposite, 0.0, to_mean))[1])
        # The tangent is sum_i pull_i (point_i - to_mean_i * mean); `along` is its coefficient of -mean.
        along = (pull * to_mean).sum(0)
        to_pull = (cosines * pull).sum(1)
        tangent_squared = (pull * to_pull).sum(0) - along * along
        cosine, sinc = _cos_sinc(tangent_squared)
        keep = cosine - sinc * along
        mean = keep * mean + sinc * pull
        to_mean = keep * to_mean + sinc * to_pull
    # |mean|^2 = sum_i mean_i * to_mean_i; one division removes the rounding errors of all steps.
    return (mean * _inverse_root((mean * to_mean).sum(0)) * scale).mT.contiguous()


def euclidean_coefficients(points: Tensor, weights: Tensor) -> Tensor:
    """Return the weights (M, K), scaled so that the weighted sum of the points (M, K, D) has length one."""
    cosines, scale = _cosines(points)
    # Weights over unit vectors. A constant scales the largest to one, since points may have any length.
    mean = weights.mT / scale
    constant = mean.detach().amax(0)
    mean = mean / torch.where(constant > 0, constant, 1.0)
    return (mean * _inverse_root((mean * (cosines * mean).sum(1)).sum(0)) * scale).mT.contiguous()


def _cosines(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines (K, K, M) of points (M, K, D), and the factors (K, M) that scale them to length one.

    M comes last, so sums over K add contiguous vectors.
    """
    gram = _gram(points).permute(1, 2, 0).contiguous()
    # Only directions matter, so constants first scale the points to about length one. The derivative of a length is
    # then taken near 1, where it cannot overflow.
    constant = _inverse_root(gram.diagonal().mT.detach())
    cosines = gram * constant.unsqueeze(1) * constant
    correction = _inverse_root(cosines.diagonal().mT)
    return cosines * correction.unsqueeze(1) * correction, correction * constant


def _inverse_root(square: Tensor) -> Tensor:
    """Return 1 / sqrt(square), or 1 where the square is 0."""
    return torch.where(square > 0, square, 1.0).rsqrt()


def slerp_coefficients(cosine: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return sin(w Omega) / sin(Omega) and cos(w Omega) from cos(Omega) and w: smooth at 0, not for antipodes."""
    squared, ratio = _arc(cosine)
    travelled, sinc = _cos_sinc(weight * weight * squared)
    return weight * sinc * ratio, travelled


def along_arc(start: Tensor, points: Tensor, coefficients: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return |start| * SLERP(start, target, weight) (M, D) (Eqs. 6, 7), and the cosine of the angle to the target (M,).

    The start is one vector (D,). The unit target is the sum of the points (M, K, D) with `coefficients` (M, K). Its
    angle comes from inner products, so the target itself is never computed and one weighted sum gives the result.
    """
    norm = torch.linalg.vector_norm(start)
    direction = start / torch.where(norm > 0, norm, 1.0)
    true_cosine = (coefficients * (points @ direction)).sum(-1)
    opposite = antipodal(true_cosine)
    cosine = torch.where(opposite, 0.0, true_cosine)
    on_target, travelled = slerp_coefficients(cosine, weight)
    # SLERP = cos(w Omega) start + [sin(w Omega) / sin Omega] (target - cos(Omega) start): exactly the start at w = 0.
    on_start = torch.where(opposite, torch.cos(math.pi * weight), travelled - cosine * on_target)
    on_target = torch.where(opposite, 0.0, on_target * norm)
    on_orthogonal = torch.where(opposite, torch.sin(math.pi * weight), 0.0)
    blend = combine(on_target.unsqueeze(-1) * coefficients, points)
    blend = blend.addmm_(
        torch.stack([on_start, on_orthogonal], dim=1), torch.stack([start, norm * _orthogonal(direction)])
    )
    return with_norm(blend, norm, weight), true_cosine


def with_norm(vectors: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Scale vectors (M, D) to a norm. At weight 0 they are the start itself, and the factor is exactly 1."""
    length = torch.linalg.vector_norm(vectors, dim=-1)
    scale = norm / torch.where(length > 0, length, 1.0)
    # Two norms of one vector may differ in the last bit. A constant corrects that without changing the gradient.
    scale = scale + torch.where(weight == 0, 1 - scale, 0.0).detach()
    return vectors * scale.unsqueeze(-1)
