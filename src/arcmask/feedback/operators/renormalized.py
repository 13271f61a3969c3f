"""LERP scaled back to the mask's norm."""

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback.registry import operator


@operator(
    "renormalized",
    label="linear, renormalized",
    colour="#2e9e77",
    keeps_norm=True,
    uses_steps=False,
    mean="weighted Euclidean mean",
    path="straight line, scaled to the mask's norm",
)
def renormalized(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move straight towards the Euclidean mean, then scale back to the mask's norm.

    This keeps the norm (P2), but not the constant speed of the geodesic (P3).
    """
    blend = torch.lerp(mask, sphere.combine(probs, candidates), weight.unsqueeze(-1))
    norm = torch.linalg.vector_norm(mask)
    length = torch.linalg.vector_norm(blend, dim=-1, keepdim=True)
    # Half-way to an antipode the blend is zero. Use the point that the arc of `slerp` passes there.
    vanished = length <= 4 * torch.finfo(mask.dtype).eps * norm
    return sphere.with_norm(torch.where(vanished, norm * sphere.orthogonal(mask), blend), norm, weight)
