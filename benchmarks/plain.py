"""Plain implementations, written directly from the paper, that the package is timed against."""

import torch
from torch import Tensor

from arcmask.model import MDLM

EPSILON = 1e-6


def literal_spherical(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
    """Run Algorithms 1 and 2 over a batch, with the Karcher flow in D dimensions and the paper's guards."""
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
    """Return top-k ids, probabilities and entropy from softmax, log, sum and top-k over all of (M, V)."""
    probs = logits.softmax(-1)
    entropy = -(probs * probs.clamp_min(1e-12).log()).sum(-1)
    top = probs.topk(k)
    return top.indices, top.values / top.values.sum(-1, keepdim=True), entropy


class PlainSampler:
    """A denoising step as in public implementations: all positions, and the whole vocabulary."""

    def __init__(self, model: MDLM, operator: str | None, top_p: float) -> None:
        self.model, self.operator, self.top_p = model, operator, top_p

    def step(self, tokens: Tensor, time: float, after: float, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return tokens (B, L) and log-probabilities (B, L, V) after a step, from those of the step before."""
        embeddings = self.model.table[tokens]
        masked = tokens == self.model.mask_id
        if self.operator is not None and before is not None:
            embeddings[masked] = self._feedback(before[masked])
        logits = self.model(inputs_embeds=embeddings).logits
        logits[..., self.model.mask_id] = -1e6
        log_probs = logits - logits.logsumexp(-1, keepdim=True)
        # Carry-over: an unmasked token has probability 1.
        log_probs[~masked] = -1e6
        log_probs[~masked, tokens[~masked]] = 0.0
        probs = log_probs.exp()
        if self.top_p < 1:
            ordered, ids = probs.sort(dim=-1, descending=True)
            kept = ordered.cumsum(-1) <= self.top_p
            kept[..., 0] = True
            probs = torch.zeros_like(probs).scatter_(-1, ids, ordered * kept)
            probs = probs / probs.sum(-1, keepdim=True)
        transition = probs * (time - after)
        transition[..., self.model.mask_id] = after
        noise = 1e-10 - (torch.rand(transition.shape, dtype=torch.float64) + 1e-10).log()
        drawn = (transition / noise).argmax(-1)
        return torch.where(masked, drawn, tokens), log_probs

    def _feedback(self, log_probs: Tensor) -> Tensor:
        ids, probs, entropy = plain_candidates(log_probs, 3)
        weight = 0.5 * torch.sigmoid(10 / 1.5 * (4.0 - entropy))
        mask, candidates = self.model.table[self.model.mask_id], self.model.table[ids]
        if self.operator == "linear":
            mean = (probs.unsqueeze(-1) * candidates).sum(1)
            return (1 - weight).unsqueeze(-1) * mask + weight.unsqueeze(-1) * mean
        return literal_spherical(mask, candidates, probs, weight)
