"""The operators of the paper and two that lie between them.

Each takes mask (D,), candidates (M, K, D), probs (M, K) and weight (M,) in one dtype and returns (M, D). At weight 0
all return the mask's embedding, bit for bit, with the true gradient.
"""

import math

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback.registry import operator


@operator("none")
def none(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """The plain mask: a masked diffusion model without feedback."""
    return mask.expand(candidates.shape[0], -1)


@operator("linear")
def linear(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """TopK/LERP: along the chord towards the Euclidean mean; shrinks on the way, and ends at the mean's own norm."""
    return torch.lerp(mask, sphere.combine(probs, candidates), weight.unsqueeze(-1))


@operator("renormalized")
def renormalized(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """LERP scaled back to the mask's norm: right length (P2), but not the geodesic's pace or plane of means (P3)."""
    blend = torch.lerp(mask, sphere.combine(probs, candidates), weight.unsqueeze(-1))
    norm = torch.linalg.vector_norm(mask)
    length = torch.linalg.vector_norm(blend, dim=-1, keepdim=True)
    # Half-way to an antipode nothing is left of the blend; the arc that `slerp` takes there passes this point.
    vanished = length <= 4 * torch.finfo(mask.dtype).eps * norm
    return _with_norm(torch.where(vanished, norm * sphere.orthogonal(mask), blend), norm, weight)


@operator("spherical")
def spherical(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """S-SM (Algorithm 1): along the great circle towards the Fréchet mean, at the mask's norm."""
    return _along_arc(mask, candidates, sphere.frechet_coefficients(candidates, probs, steps), weight)


@operator("spherical-euclidean")
def spherical_euclidean(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Along the great circle towards the direction of the Euclidean mean: SLERP without the Karcher flow."""
    return _along_arc(mask, candidates, sphere.euclidean_coefficients(candidates, probs), weight)


def _along_arc(mask: Tensor, candidates: Tensor, coefficients: Tensor, weight: Tensor) -> Tensor:
    """r_m * SLERP(mask, target, weight) (Eqs. 6 and 7); coefficients (M, K) over the candidates give the unit target.

    The angle is found from inner products before the target exists, so that one weighted sum makes the result.
    """
    norm = torch.linalg.vector_norm(mask)
    direction = mask / torch.where(norm > 0, norm, 1.0)
    cosine = (coefficients * (candidates @ direction)).sum(-1)
    opposite = sphere.antipodal(cosine)
    cosine = torch.where(opposite, 0.0, cosine)
    on_target, travelled = sphere.slerp_coefficients(cosine, weight)
    # SLERP = cos(w Omega) mask + [sin(w Omega) / sin Omega] (target - cos(Omega) mask): exactly the mask at w = 0.
    on_mask = torch.where(opposite, torch.cos(math.pi * weight), travelled - cosine * on_target)
    on_target = torch.where(opposite, 0.0, on_target * norm)
    on_orthogonal = torch.where(opposite, torch.sin(math.pi * weight), 0.0)
    blend = sphere.combine(on_target.unsqueeze(-1) * coefficients, candidates)
    blend = blend.addmm_(
        torch.stack([on_mask, on_orthogonal], dim=1), torch.stack([mask, norm * sphere.orthogonal(mask)])
    )
    return _with_norm(blend, norm, weight)


def _with_norm(vectors: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """(M, D) scaled to a norm; at weight 0, where they are the mask itself, by exactly one."""
    length = torch.linalg.vector_norm(vectors, dim=-1)
    scale = norm / torch.where(length > 0, length, 1.0)
    # Two norms of one vector may differ in the last bit; a constant takes that back and leaves the gradient alone.
    scale = scale + torch.where(weight == 0, 1 - scale, 0.0).detach()
    return vectors * scale.unsqueeze(-1)
