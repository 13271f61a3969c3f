"""Inputs of operators, drawn from a seed."""

import torch
from torch import Tensor


class Case:
    """Inputs of an operator: mask (D,), candidates (M, K, D), probs (M, K) in falling order, weight (M,)."""

    def __init__(self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> None:
        self.mask, self.candidates, self.probs, self.weight = mask, candidates, probs, weight

    def __iter__(self):
        return iter((self.mask, self.candidates, self.probs, self.weight))

    def to(self, dtype: torch.dtype) -> "Case":
        return Case(*(x.to(dtype) for x in self))


def make_case(seed: int = 0, m: int = 5, k: int = 3, d: int = 32, dtype: torch.dtype = torch.float32) -> Case:
    """Draw a case whose candidates have angles below 150 degrees to each other for D of 16 and more."""
    draw = torch.Generator().manual_seed(seed)
    shared = torch.randn(m, 1, d, generator=draw, dtype=torch.float64)
    own = torch.randn(m, k, d, generator=draw, dtype=torch.float64)
    norms = 0.5 + torch.rand(m, k, 1, generator=draw, dtype=torch.float64)
    probs = (2 * torch.randn(m, k, generator=draw, dtype=torch.float64)).softmax(-1).sort(descending=True).values
    weight = torch.rand(m, generator=draw, dtype=torch.float64)
    mask = torch.randn(d, generator=draw, dtype=torch.float64)
    return Case(mask, norms * (own + 0.5 * shared), probs, weight).to(dtype)
