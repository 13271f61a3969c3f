"""Five operators that take from LERP what its norm and its turn say about each position.

Where the candidates disagree, LERP's blend is shorter, and it turns less. So its norm and its turn could tell the model
how certain a prediction was. Each operator here keeps the mean of one of them over the positions of a batch, and hides
the rest: every position gets the mean, or the positions exchange their values. The last one does not turn at all.

| operator | turn | norm |
|---|---|---|
| `linear` | LERP's | LERP's |
| `norm-constant` | LERP's | the mean of LERP's |
| `norm-shuffled` | LERP's | LERP's at another position |
| `renormalized` | LERP's | the mask's |
| `turn-constant` | the mean of LERP's | the mask's |
| `turn-shuffled` | LERP's at another position | the mask's |
| `spherical-euclidean` | SLERP's | the mask's |
| `norm-only` | none | the mean of LERP's |

Shapes: M masked positions, K candidates, D width.
"""

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback import operator


def constant(values: Tensor) -> Tensor:
    """Return the mean of values (M,) at every position."""
    return values.mean().expand_as(values)


def shuffled(values: Tensor) -> Tensor:
    """Return values (M,) in another order, always the same one for a number of positions."""
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(0))]


def lerp(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return LERP's blend (M, D) and its norm (M,)."""
    blend = torch.lerp(mask, sphere.combine(probs, candidates), weight.unsqueeze(-1))
    return blend, torch.linalg.vector_norm(blend, dim=-1)


def turned(mask: Tensor, candidates: Tensor, probs: Tensor, turn: Tensor) -> Tensor:
    """Return the mask, turned towards the Euclidean mean by angles (M,) in radians (M, D)."""
    away = sphere.angle(mask, sphere.combine(probs, candidates))
    share = torch.where(away > 0, turn / torch.where(away > 0, away, 1.0), 0.0)
    return sphere.along_arc(mask, candidates, sphere.euclidean_coefficients(candidates, probs), share)[0]


@operator("norm-constant", label="LERP's turn, constant norm", colour="#c9a227")
def norm_constant(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move straight towards the Euclidean mean, then give every blend the mean norm of all blends."""
    blend, norm = lerp(mask, candidates, probs, weight)
    return sphere.with_norm(blend, constant(norm), weight)


@operator("norm-shuffled", label="LERP's turn, shuffled norms", colour="#8c6d1f")
def norm_shuffled(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move straight towards the Euclidean mean, then exchange the norms of the blends."""
    blend, norm = lerp(mask, candidates, probs, weight)
    return sphere.with_norm(blend, shuffled(norm), weight)


@operator("turn-constant", label="constant turn, the mask's norm", colour="#6baed6", keeps_norm=True)
def turn_constant(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Turn every mask by LERP's mean turn."""
    return turned(mask, candidates, probs, constant(sphere.angle(mask, lerp(mask, candidates, probs, weight)[0])))


@operator("turn-shuffled", label="shuffled turns, the mask's norm", colour="#31708f", keeps_norm=True)
def turn_shuffled(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Turn every mask by LERP's turn of another position."""
    return turned(mask, candidates, probs, shuffled(sphere.angle(mask, lerp(mask, candidates, probs, weight)[0])))


@operator("norm-only", label="no turn, constant norm", colour="#7f7f7f")
def norm_only(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Scale every mask to the mean norm of LERP's blends, and feed nothing back."""
    norm = lerp(mask, candidates, probs, weight)[1]
    return sphere.with_norm(mask.expand(len(norm), -1), constant(norm), weight)
