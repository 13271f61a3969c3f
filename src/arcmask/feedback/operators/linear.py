"""LERP, the paper's TopK baseline."""

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback.registry import operator


@operator(
    "linear",
    label="linear (LERP)",
    colour="#e07b28",
    keeps_norm=False,
    uses_steps=False,
    mean="weighted Euclidean mean",
    path="straight line (LERP)",
)
def linear(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move straight towards the Euclidean mean of the candidates.

    The norm shrinks on the way and ends at the mean's own norm.
    """
    return torch.lerp(mask, sphere.combine(probs, candidates), weight.unsqueeze(-1))
