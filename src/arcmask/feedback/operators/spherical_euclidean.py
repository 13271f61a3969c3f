"""SLERP without the Karcher flow."""

from torch import Tensor

from arcmask import sphere
from arcmask.feedback.registry import operator


@operator(
    "spherical-euclidean",
    label="SLERP to the Euclidean mean",
    colour="#7bb8e0",
    keeps_norm=True,
    uses_steps=False,
    mean="direction of the weighted Euclidean mean",
    path="great circle (SLERP)",
)
def spherical_euclidean(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move along the great circle towards the direction of the Euclidean mean, at the mask's norm."""
    return sphere.along_arc(mask, candidates, sphere.euclidean_coefficients(candidates, probs), weight)[0]
