"""The plain implementations that ours are timed against, as one would write them down from the paper."""

import torch
from torch import Tensor

EPSILON = 1e-6


def literal_spherical(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Algorithms 1 and 2, batched over positions, with the Karcher flow in D dimensions and the paper's guards."""
    norm = mask.norm()
    unit_mask = mask / norm
    points = candidates / candidates.norm(dim=-1, keepdim=True)
    mean = points[:, 0]
    for _ in range(steps):
        cosine = (points * mean.unsqueeze(1)).sum(-1).clamp(-1 + EPSILON, 1 - EPSILON)
        omega = cosine.acos()
        sine = omega.sin()
        ratio = torch.where(sine > EPSILON, omega / sine, torch.ones_like(sine))
        tangents = ratio.unsqueeze(-1) * (points - cosine.unsqueeze(-1) * mean.unsqueeze(1))
        tangent = (probs.unsqueeze(-1) * tangents).sum(1)
        length = tangent.norm(dim=-1, keepdim=True)
        mean = length.cos() * mean + length.sin() * tangent / length.clamp_min(EPSILON)
        mean = mean / mean.norm(dim=-1, keepdim=True)
    omega = (mean @ unit_mask).clamp(-1 + EPSILON, 1 - EPSILON).acos()
    sine = omega.sin().clamp_min(EPSILON)
    on_mask, on_mean = ((1 - weight) * omega).sin() / sine, (weight * omega).sin() / sine
    return norm * (on_mask.unsqueeze(-1) * unit_mask + on_mean.unsqueeze(-1) * mean)


def plain_candidates(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax, log, sum and top-k over the whole (M, V)."""
    probs = logits.softmax(-1)
    entropy = -(probs * probs.clamp_min(1e-12).log()).sum(-1)
    top = probs.topk(k)
    return top.indices, top.values / top.values.sum(-1, keepdim=True), entropy
