"""The table of operators, and what is the same for all of them.

An operator maps (mask embedding, candidates' embeddings, probabilities, weight) to the embedding that a masked
position gets. Writing a new one takes one file with one function under `@operator("name")`, imported by this
package; the invariants, the benchmark and the reports run over `OPERATORS`.
"""

import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, unknown_name


class Operator(Protocol):
    """(D,), (M, K, D), (M, K), (M,) -> (M, D), in the dtype of `mask`; `steps` is the number of Karcher steps."""

    def __call__(self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor: ...


OPERATORS: dict[str, Operator] = {}


def find_operator(name: str) -> Operator:
    """The operator of that name; an unknown name is an error that lists the known ones."""
    if name not in OPERATORS:
        raise unknown_name("operator", name, OPERATORS)
    return OPERATORS[name]


def operator(name: str) -> Callable[[Operator], Operator]:
    """Register a function as an operator: shapes checked, computed in float32 or better, autocast kept out."""

    def register(function: Operator) -> Operator:
        @functools.wraps(function)
        def checked(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
            _check_shapes(mask, candidates, probs, weight, steps)
            dtype = torch.promote_types(mask.dtype, torch.float32)
            # Autocast would run the inner products in bfloat16 whatever the dtype of their inputs.
            with torch.autocast(mask.device.type, enabled=False):
                result = function(mask.to(dtype), candidates.to(dtype), probs.to(dtype), weight.to(dtype), steps)
            return result.to(mask.dtype)

        OPERATORS[name] = checked
        return checked

    return register


def _check_shapes(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int) -> None:
    m, k, d = candidates.shape if candidates.ndim == 3 else (-1, -1, -1)
    if (mask.shape, probs.shape, weight.shape) != ((d,), (m, k), (m,)) or k < 1:
        raise ArcmaskError(
            "an operator takes mask (D,), candidates (M, K, D) with K of at least 1, probs (M, K) and weight (M,), "
            f"but got {tuple(mask.shape)}, {tuple(candidates.shape)}, {tuple(probs.shape)} and {tuple(weight.shape)}"
        )
    if steps < 0:
        raise ArcmaskError(f"the number of Karcher steps is {steps}, but must be 0 or more")
