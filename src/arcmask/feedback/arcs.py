"""Functions that several operators share: SLERP towards a mean of the candidates, and scaling to the mask's norm.

Shapes: M masked positions, K candidates, D width.
"""

import math

import torch
from torch import Tensor

from arcmask import sphere


def along_arc(mask: Tensor, candidates: Tensor, coefficients: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return r_m * SLERP(mask, target, weight) (Eqs. 6 and 7), (M, D), and the cosine of the angle to the target, (M,).

    The unit target is the sum of the candidates (M, K, D) with `coefficients` (M, K). Its angle comes from inner
    products, so the target itself is never computed and one weighted sum gives the result.
    """
    norm = torch.linalg.vector_norm(mask)
    direction = mask / torch.where(norm > 0, norm, 1.0)
    true_cosine = (coefficients * (candidates @ direction)).sum(-1)
    opposite = sphere.antipodal(true_cosine)
    cosine = torch.where(opposite, 0.0, true_cosine)
    on_target, travelled = sphere.slerp_coefficients(cosine, weight)
    # SLERP = cos(w Omega) mask + [sin(w Omega) / sin Omega] (target - cos(Omega) mask): exactly the mask at w = 0.
    on_mask = torch.where(opposite, torch.cos(math.pi * weight), travelled - cosine * on_target)
    on_target = torch.where(opposite, 0.0, on_target * norm)
    on_orthogonal = torch.where(opposite, torch.sin(math.pi * weight), 0.0)
    blend = sphere.combine(on_target.unsqueeze(-1) * coefficients, candidates)
    blend = blend.addmm_(
        torch.stack([on_mask, on_orthogonal], dim=1), torch.stack([mask, norm * sphere.orthogonal(mask)])
    )
    return with_norm(blend, norm, weight), true_cosine


def with_norm(vectors: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Scale vectors (M, D) to a norm. At weight 0 they are the mask itself, and the factor is exactly 1."""
    length = torch.linalg.vector_norm(vectors, dim=-1)
    scale = norm / torch.where(length > 0, length, 1.0)
    # Two norms of one vector may differ in the last bit. A constant corrects that without changing the gradient.
    scale = scale + torch.where(weight == 0, 1 - scale, 0.0).detach()
    return vectors * scale.unsqueeze(-1)
