"""Four operators that complete a factorial of three ingredients: mean x path x norm.

| mean | path | norm | operator |
|---|---|---|---|
| Euclidean | chord | own | `linear` |
| Euclidean | chord | mask's | `renormalized` |
| Euclidean | arc | own | `euclidean-arc-own` |
| Euclidean | arc | mask's | `spherical-euclidean` |
| Fréchet | chord | own | `frechet-chord-own` |
| Fréchet | chord | mask's | `frechet-chord-mask` |
| Fréchet | arc | own | `frechet-arc-own` |
| Fréchet | arc | mask's | `spherical` |

The Fréchet mean is a direction. Where a chord needs its length, it gets that of the Euclidean mean. The own norm of an
arc is the norm of the chord's blend with the same mean and weight. So norm and direction are separate: two operators
that differ in the norm alone turn the mask by the same angle.

    arcmask sample sotu-tiny --feedback docs/results/ingredients.py:frechet_arc_own

Shapes: M masked positions, K candidates, D width.
"""

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback import operator


def frechet_mean_with_length(candidates: Tensor, probs: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the Fréchet mean with the Euclidean mean's length (M, D), and the coefficients (M, K) of its direction."""
    coefficients = sphere.frechet_coefficients(candidates, probs, steps)
    length = torch.linalg.vector_norm(sphere.combine(probs, candidates), dim=-1, keepdim=True)
    return length * sphere.combine(coefficients, candidates), coefficients


def chord(mask: Tensor, mean: Tensor, weight: Tensor) -> Tensor:
    """Return the blend (M, D) on the straight line from the mask (D,) to the mean (M, D)."""
    return torch.lerp(mask, mean, weight.unsqueeze(-1))


def arc_with_norm_of(blend: Tensor, mask: Tensor, candidates: Tensor, coefficients: Tensor, weight: Tensor) -> Tensor:
    """Return the direction on the arc towards a mean, given by its coefficients (M, K), with the norm of a blend."""
    direction = sphere.along_arc(mask, candidates, coefficients, weight)[0]
    return sphere.with_norm(direction, torch.linalg.vector_norm(blend, dim=-1), weight)


@operator(
    "euclidean-arc-own",
    label="Euclidean, arc, own norm",
    colour="#9467bd",
    mean="direction of the weighted Euclidean mean",
    path="great circle, with the norm of the straight line",
)
def euclidean_arc_own(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move along the great circle towards the Euclidean mean, with the norm that LERP has."""
    blend = chord(mask, sphere.combine(probs, candidates), weight)
    coefficients = sphere.euclidean_coefficients(candidates, probs)
    return arc_with_norm_of(blend, mask, candidates, coefficients, weight)


@operator(
    "frechet-chord-own",
    label="Fréchet, chord, own norm",
    colour="#b5651d",
    mean="Fréchet mean with the Euclidean mean's length",
    path="straight line (LERP)",
)
def frechet_chord_own(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Move straight towards the Fréchet mean."""
    return chord(mask, frechet_mean_with_length(candidates, probs, steps)[0], weight)


@operator(
    "frechet-chord-mask",
    label="Fréchet, chord, mask's norm",
    colour="#17807e",
    keeps_norm=True,
    mean="Fréchet mean with the Euclidean mean's length",
    path="straight line, scaled to the mask's norm",
)
def frechet_chord_mask(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Move straight towards the Fréchet mean, then scale back to the mask's norm."""
    blend = chord(mask, frechet_mean_with_length(candidates, probs, steps)[0], weight)
    norm = torch.linalg.vector_norm(mask)
    length = torch.linalg.vector_norm(blend, dim=-1, keepdim=True)
    # Half-way to an antipode the blend is zero. Use the point that the arc passes there, as `renormalized` does.
    vanished = length <= 4 * torch.finfo(mask.dtype).eps * norm
    return sphere.with_norm(torch.where(vanished, norm * sphere.orthogonal(mask), blend), norm, weight)


@operator(
    "frechet-arc-own",
    label="Fréchet, arc, own norm",
    colour="#4b4e8f",
    mean="Fréchet mean",
    path="great circle, with the norm of the straight line",
)
def frechet_arc_own(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Move along the great circle towards the Fréchet mean, with the norm of the straight line to it."""
    mean, coefficients = frechet_mean_with_length(candidates, probs, steps)
    return arc_with_norm_of(chord(mask, mean, weight), mask, candidates, coefficients, weight)
