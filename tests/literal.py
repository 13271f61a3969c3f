"""Algorithms 1 and 2 of the paper, line by line, with its constants. The tests compare the package with them.

They run in D dimensions, one position at a time, in float64. The variable names are the paper's.
"""

import torch
from torch import Tensor

EPSILON = 1e-6
DELTA = 1e-6


def karcher_mean(v: Tensor, pi: Tensor, n_iter: int) -> Tensor:
    """Algorithm 2: unit vectors (k, D), weights (k,) -> (D,)."""
    mu = v[0]
    for _ in range(n_iter):
        tau = torch.zeros_like(mu)
        for v_i, pi_i in zip(v, pi, strict=True):
            c = (mu @ v_i).clamp(-1 + EPSILON, 1 - EPSILON)
            omega = c.acos()
            r = omega / omega.sin() if omega.sin() > EPSILON else torch.ones_like(omega)
            tau = tau + pi_i * (r * (v_i - c * mu))
        length = tau.norm()
        if length > 0:
            mu = length.cos() * mu + length.sin() * tau / length
        mu = mu / mu.norm()
    return mu


def spherical_soft_mask(mask: Tensor, candidates: Tensor, pi: Tensor, weight: Tensor, n_iter: int) -> Tensor:
    """Algorithm 1, from gathered candidates: (D,), (k, D), (k,), () -> (D,)."""
    r_m = mask.norm()
    m = mask / r_m
    mu = karcher_mean(candidates / candidates.norm(dim=-1, keepdim=True), pi, n_iter)
    omega = (m @ mu).clamp(-1 + EPSILON, 1 - EPSILON).acos()
    if omega < DELTA:
        s = (1 - weight) * m + weight * mu
        s = s / s.norm()
    else:
        sin = omega.sin().clamp_min(EPSILON)
        s = ((1 - weight) * omega).sin() / sin * m + (weight * omega).sin() / sin * mu
    return r_m * s


def batched(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, n_iter: int) -> Tensor:
    """Algorithm 1 over M positions, in float64."""
    mask, candidates, probs, weight = (x.double() for x in (mask, candidates, probs, weight))
    rows = [spherical_soft_mask(mask, c, p, w, n_iter) for c, p, w in zip(candidates, probs, weight, strict=True)]
    return torch.stack(rows)
