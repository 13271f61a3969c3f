"""Spherical soft-masking, the paper's operator (Algorithm 1)."""

from torch import Tensor

from arcmask import sphere
from arcmask.feedback.registry import operator


def spherical_with_angle(
    mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3
) -> tuple[Tensor, Tensor]:
    """Return the embeddings (M, D), and the angle (M,) between the mask and the Fréchet mean, without gradient.

    In float32 an angle below 0.01 is accurate to about 1e-4; the arc cosine loses digits near 0.
    """
    coefficients = sphere.frechet_coefficients(candidates, probs, steps)
    embeddings, cosine = sphere.along_arc(mask, candidates, coefficients, weight)
    return embeddings, cosine.detach().clamp(-1, 1).acos()


@operator(
    "spherical",
    label="spherical (SLERP)",
    colour="#1f6fb2",
    keeps_norm=True,
    uses_steps=True,
    mean="Fréchet mean",
    path="great circle (SLERP)",
    with_angle=spherical_with_angle,
)
def spherical(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Move along the great circle towards the Fréchet mean, at the mask's norm."""
    return sphere.along_arc(mask, candidates, sphere.frechet_coefficients(candidates, probs, steps), weight)[0]
