"""The unit sphere: angles, the log and exp maps, the Fréchet mean and SLERP.

Knows nothing of tokens or models. Every function takes vectors of any non-zero length and looks only at their
direction, keeps the dtype it is given, and has finite gradients at coincident points, at antipodes and at a zero
tangent. Two ideas carry this:

- A limit is taken exactly, never approached through an epsilon. theta / sin(theta) as a function of the cosine, and
  cos and sin(x) / x as functions of x squared, are smooth where acos, sqrt and the divisions inside them are not;
  `_Arc` and `_CosSinc` are those functions, with their true derivatives.
- Between antipodes every great circle is a shortest path. `log_map` and `slerp` take a fixed one (`orthogonal`); in
  the Fréchet mean an antipodal point pulls along none of them, which is the average over all.

Shapes: D dimensions, K points; `...` is any batch.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class _Arc(torch.autograd.Function):
    """cos(theta) -> (theta squared, theta / sin(theta)); smooth at theta = 0, infinite ratio at theta = pi."""

    @staticmethod
    def forward(cosine: Tensor) -> tuple[Tensor, Tensor]:
        theta = cosine.clamp(-1, 1).acos_()
        squared = theta.square()
        return squared, theta.mul_(1 / math.pi).sinc_().reciprocal_()

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: FunctionCtx, grad_squared: Tensor, grad_ratio: Tensor) -> Tensor:
        cosine, ratio = ctx.saved_tensors  # type: ignore[attr-defined]
        # d(ratio)/d(cos) = (cos * ratio - 1) / (1 - cos^2), which cancels near cos = 1; there, its Taylor series.
        y = 1 - cosine
        near = y < 0.01
        far_slope = (cosine * ratio - 1) / torch.where(near, 1.0, y * (1 + cosine))
        near_slope = -1 / 3 - y * (4 / 15 + y * (6 / 35 + y * (32 / 315 + y * (40 / 693))))
        return torch.where(near, near_slope, far_slope) * grad_ratio - 2 * ratio * grad_squared


class _CosSinc(torch.autograd.Function):
    """s -> (cos(sqrt(s)), sin(sqrt(s)) / sqrt(s)); smooth at s = 0, where rounding may make s a little negative."""

    @staticmethod
    def forward(squared: Tensor) -> tuple[Tensor, Tensor]:
        root = squared.clamp_min(0).sqrt_()
        cosine = root.cos()
        return cosine, root.mul_(1 / math.pi).sinc_()

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_cosine: Tensor, grad_sinc: Tensor) -> Tensor:
        squared, cosine, sinc = ctx.saved_tensors  # type: ignore[attr-defined]
        near = squared < 0.01
        far_slope = (cosine - sinc) / torch.where(near, 1.0, 2 * squared)
        near_slope = -1 / 6 + squared * (1 / 60 - squared * (1 / 1680 - squared * (1 / 90720)))
        return torch.where(near, near_slope, far_slope) * grad_sinc - 0.5 * sinc * grad_cosine


class _Gram(torch.autograd.Function):
    """(M, K, D) -> (M, K, K) inner products; its gradient is one product, where autograd would take two."""

    @staticmethod
    def forward(points: Tensor) -> Tensor:
        return torch.bmm(points, points.mT)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (points,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return torch.bmm((grad + grad.mT).contiguous(), points)


def _arc(cosine: Tensor) -> tuple[Tensor, Tensor]:
    return _Arc.apply(cosine)  # type: ignore[no-untyped-call]


def _cos_sinc(squared: Tensor) -> tuple[Tensor, Tensor]:
    return _CosSinc.apply(squared)  # type: ignore[no-untyped-call]


def _gram(points: Tensor) -> Tensor:
    return _Gram.apply(points)  # type: ignore[no-untyped-call]


def antipodal(cosine: Tensor) -> Tensor:
    """Where a cosine is -1 up to the rounding of an inner product, so that no arc is the shortest one."""
    return cosine < -1 + 8 * torch.finfo(cosine.dtype).eps


def unit(vector: Tensor) -> Tensor:
    """(..., D) scaled to length one; a zero vector stays zero."""
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(length > 0, length, 1.0)


def orthogonal(vector: Tensor) -> Tensor:
    """(..., D) -> a unit vector at a right angle to each: the coordinate axis it leans on least, made orthogonal.

    A constant for autograd: where it is used, the direction is a convention and has no derivative.
    """
    if vector.shape[-1] < 2:
        return torch.zeros_like(vector)
    with torch.no_grad():
        direction = unit(vector)
        axis = torch.zeros_like(direction).scatter_(-1, direction.abs().argmin(-1, keepdim=True), 1.0)
        return unit(axis - (axis * direction).sum(-1, keepdim=True) * direction)


def angle(u: Tensor, v: Tensor) -> Tensor:
    """(..., D), (..., D) -> (...) radians in [0, pi], accurate at both ends (Kahan's half-angle form)."""
    u, v = unit(u), unit(v)
    return 2 * torch.atan2(torch.linalg.vector_norm(u - v, dim=-1), torch.linalg.vector_norm(u + v, dim=-1))


def log_map(base: Tensor, point: Tensor) -> Tensor:
    """(..., D), (..., D) -> the tangent at `base` whose geodesic reaches `point` (Eq. 2); its length is the angle."""
    base, point = unit(base), unit(point)
    theta = angle(base, point).unsqueeze(-1)
    # The part of `point` across `base`. Subtracting base (or adding it, on the far side) first keeps the digits that
    # point - <point, base> base would cancel.
    near = (base * point).sum(-1, keepdim=True) >= 0
    gap = point - torch.where(near, base, -base)
    across = gap - (gap * base).sum(-1, keepdim=True) * base
    length = torch.linalg.vector_norm(across, dim=-1, keepdim=True)
    has_direction = length > torch.finfo(base.dtype).tiny
    ratio = torch.where(has_direction, theta / torch.where(has_direction, length, 1.0), 1.0)
    return torch.where(has_direction | near, ratio * across, theta * orthogonal(base))


def exp_map(base: Tensor, tangent: Tensor) -> Tensor:
    """(..., D), (..., D) -> the unit vector reached from `base` along `tangent` (Eq. 3)."""
    cosine, sinc = _cos_sinc((tangent * tangent).sum(-1, keepdim=True))
    return unit(cosine * unit(base) + sinc * tangent)


def slerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """(..., D), (..., D), (...) -> the point at `weight` of the way along the arc from start to end (Eq. 6)."""
    return exp_map(start, weight.unsqueeze(-1) * log_map(start, end))


def frechet_mean(points: Tensor, weights: Tensor, steps: int = 3) -> Tensor:
    """(..., K, D), (..., K) -> (..., D): the mean of directions after `steps` of Karcher flow (Algorithm 2)."""
    *batch, k, d = points.shape
    points = points.reshape(-1, k, d)
    coefficients = frechet_coefficients(points, weights.expand(*batch, k).reshape(-1, k), steps)
    return unit(combine(coefficients, points)).reshape(*batch, d)


def combine(coefficients: Tensor, points: Tensor) -> Tensor:
    """(M, K), (M, K, D) -> (M, D), the weighted sums."""
    return torch.bmm(coefficients.unsqueeze(1), points).squeeze(1)


def frechet_coefficients(points: Tensor, weights: Tensor, steps: int) -> Tensor:
    """(M, K, D), (M, K) -> (M, K): coefficients over the raw points of their Fréchet mean, of length one.

    The flow starts at the first point and never leaves the span of all, so that K coefficients and the matrix of the
    points' cosines replace D coordinates: after one product each step costs K^2, not K * D.
    """
    cosines, scale = _cosines(points)
    weights = weights.mT.contiguous()
    mean = torch.zeros_like(weights)
    mean[0] = 1.0
    to_mean = cosines[0]  # the cosine of each point with the mean
    for _ in range(steps):
        opposite = antipodal(to_mean)
        pull = torch.where(opposite, 0.0, weights * _arc(torch.where(opposite, 0.0, to_mean))[1])
        # The tangent is sum_i pull_i (point_i - to_mean_i * mean); `along` is what it takes off the mean.
        along = (pull * to_mean).sum(0)
        to_pull = (cosines * pull).sum(1)
        tangent_squared = (pull * to_pull).sum(0) - along * along
        cosine, sinc = _cos_sinc(tangent_squared)
        keep = cosine - sinc * along
        mean = keep * mean + sinc * pull
        to_mean = keep * to_mean + sinc * to_pull
    # |mean|^2 = sum_i mean_i * to_mean_i; one division undoes the drift of all steps.
    return (mean * _inverse_root((mean * to_mean).sum(0)) * scale).mT.contiguous()


def euclidean_coefficients(points: Tensor, weights: Tensor) -> Tensor:
    """(M, K, D), (M, K) -> (M, K): the weights, scaled so that the points' weighted sum has length one."""
    cosines, scale = _cosines(points)
    # Weights over unit vectors; the largest is brought to one by a constant, since points may be of any length.
    mean = weights.mT / scale
    constant = mean.detach().amax(0)
    mean = mean / torch.where(constant > 0, constant, 1.0)
    return (mean * _inverse_root((mean * (cosines * mean).sum(1)).sum(0)) * scale).mT.contiguous()


def _cosines(points: Tensor) -> tuple[Tensor, Tensor]:
    """(M, K, D) -> the points' cosines (K, K, M), and what scales each to length one (K, M).

    M comes last, so that sums over K run along whole vectors.
    """
    gram = _gram(points).permute(1, 2, 0).contiguous()
    # Only directions matter, so the points may first be brought to about length one by constants: the derivative of a
    # length is then taken near 1, where it cannot overflow.
    constant = _inverse_root(gram.diagonal().mT.detach())
    cosines = gram * constant.unsqueeze(1) * constant
    correction = _inverse_root(cosines.diagonal().mT)
    return cosines * correction.unsqueeze(1) * correction, correction * constant


def _inverse_root(square: Tensor) -> Tensor:
    """1 / sqrt, or 1 where there is nothing to divide by."""
    return torch.where(square > 0, square, 1.0).rsqrt()


def slerp_coefficients(cosine: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """cos(Omega), w -> (sin(w Omega) / sin(Omega), cos(w Omega)), smooth at Omega = 0; not for antipodes."""
    squared, ratio = _arc(cosine)
    travelled, sinc = _cos_sinc(weight * weight * squared)
    return weight * sinc * ratio, travelled
