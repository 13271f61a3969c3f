"""Soft-masking of a batch (Algorithm 3): what masked positions are given instead of the bare mask embedding.

Knows tokens, predictions and an embedding table; not the model they belong to. What is worth logging comes back in
the `Feedback` record and is not kept here.

Shapes: B sequences, L positions, V vocabulary, D width, M masked positions (in the order of the flattened tokens),
K candidates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from arcmask import sphere
from arcmask.candidates import Candidates, top_candidates
from arcmask.errors import ArcmaskError
from arcmask.feedback.confidence import Confidence
from arcmask.feedback.registry import find_operator


@dataclass(frozen=True)
class Feedback:
    """The input of the next pass, and how it came about."""

    embeddings: Tensor  # (B, L, D), in the table's dtype
    weight: Tensor  # (M,)
    mask: Tensor  # (D,), without gradient, as all below
    candidates: Tensor  # (M, K, D), their embeddings
    probs: Tensor  # (M, K)
    karcher_steps: int

    @cached_property
    def angle(self) -> Tensor:
        """(M,) radians between the mask and the Fréchet mean; computed when first read."""
        candidates, probs, mask = self._wide()
        return sphere.angle(mask, sphere.frechet_mean(candidates, probs, self.karcher_steps))

    @cached_property
    def euclidean_angle(self) -> Tensor:
        """(M,) radians between the mask and the Euclidean mean, the paper's diagnostic; computed when first read."""
        candidates, probs, mask = self._wide()
        return sphere.angle(mask, sphere.combine(probs, candidates))

    def _wide(self) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(self.mask.dtype, torch.float32)
        return self.candidates.to(dtype), self.probs.to(dtype), self.mask.to(dtype)


class SoftMask(nn.Module):
    """Feedback from one prediction to the next input: an operator, its candidates and its confidence."""

    def __init__(
        self,
        operator: str = "spherical",
        top_k: int = 3,
        karcher_steps: int = 3,
        confidence: Confidence | None = None,
    ) -> None:
        super().__init__()
        if top_k < 1:
            raise ArcmaskError(f"top_k is {top_k}, but must be 1 or more")
        if karcher_steps < 0:
            raise ArcmaskError(f"karcher_steps is {karcher_steps}, but must be 0 or more")
        self._operator = find_operator(operator)
        self.operator = operator
        self.top_k = top_k
        self.karcher_steps = karcher_steps
        self.confidence = Confidence() if confidence is None else confidence

    def forward(self, tokens: Tensor, logits: Tensor, table: Tensor, mask_id: int) -> Feedback:
        """(B, L), raw logits (B, L, V) or (M, V), (V, D), id -> the next input.

        The mask's own column of the logits gets no probability.
        """
        _check(tokens, table, mask_id)
        if logits.ndim not in (2, 3) or logits.shape[-1] != table.shape[0]:
            raise ArcmaskError(
                f"logits must have the shape (B, L, V) or (M, V) with V = {table.shape[0]}, the table's rows, "
                f"but they have {tuple(logits.shape)}"
            )
        rows = None
        if logits.ndim == 3:
            if logits.shape[:2] != tokens.shape:
                raise ArcmaskError(
                    f"logits are for {tuple(logits.shape[:2])} positions, but there are {tuple(tokens.shape)} tokens"
                )
            rows = (tokens == mask_id).flatten().nonzero().squeeze(1)
            logits = logits.flatten(0, 1)
        candidates = top_candidates(logits, self.top_k, rows=rows, exclude=mask_id)
        return self.blend(tokens, candidates, table, mask_id)

    def blend(
        self, tokens: Tensor, candidates: Candidates, table: Tensor, mask_id: int, positions: Tensor | None = None
    ) -> Feedback:
        """The same from candidates that are known already, one row for each masked position.

        `positions` (B, L) says which masked positions the candidates are for, if not for all; the others keep the
        mask's own embedding.
        """
        _check(tokens, table, mask_id)
        masked = tokens == mask_id
        if positions is not None:
            masked = masked & positions
        count = int(masked.sum())
        if len(candidates) != count:
            raise ArcmaskError(
                f"there are predictions for {len(candidates)} positions, but {count} positions are masked"
            )
        # One look-up for tokens, candidates and mask: its gradient fills a table of (V, D) once, not three times.
        ids = candidates.ids
        wanted = torch.cat([tokens.flatten(), ids.flatten(), tokens.new_tensor([mask_id])])
        embeddings, points, mask = embedding(wanted, table).split([tokens.numel(), ids.numel(), 1])
        points, mask = points.unflatten(0, ids.shape), mask[0]
        weight = self.confidence(candidates.entropy)
        blended = self._operator(mask, points, candidates.probs, weight, steps=self.karcher_steps)
        embeddings = embeddings.unflatten(0, tokens.shape).masked_scatter(masked.unsqueeze(-1), blended)
        return Feedback(
            embeddings=embeddings,
            weight=weight,
            mask=mask.detach(),
            candidates=points.detach(),
            probs=candidates.probs,
            karcher_steps=self.karcher_steps,
        )

    def settings(self) -> dict[str, Any]:
        """All that makes this feedback, as plain data; `from_settings` is its inverse, to the bit."""
        confidence = {name: value.item() for name, value in self.confidence.named_parameters()}
        return {
            "operator": self.operator,
            "top_k": self.top_k,
            "karcher_steps": self.karcher_steps,
            "confidence": confidence or {"fixed": self.confidence.fixed},
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """What `settings` gave; a missing or unknown entry is an error that names it."""
        wanted = {"operator", "top_k", "karcher_steps", "confidence"}
        if set(settings) != wanted:
            raise ArcmaskError(f"feedback settings are {sorted(settings)}, but must be {sorted(wanted)}")
        return cls(
            operator=settings["operator"],
            top_k=settings["top_k"],
            karcher_steps=settings["karcher_steps"],
            confidence=Confidence.from_settings(settings["confidence"]),
        )

    def extra_repr(self) -> str:
        return f"operator={self.operator!r}, top_k={self.top_k}, karcher_steps={self.karcher_steps}"


def _check(tokens: Tensor, table: Tensor, mask_id: int) -> None:
    if tokens.ndim != 2:
        raise ArcmaskError(f"tokens must have the shape (B, L), but they have {tuple(tokens.shape)}")
    if table.ndim != 2:
        raise ArcmaskError(f"the embedding table must have the shape (V, D), but it has {tuple(table.shape)}")
    if not 0 <= mask_id < table.shape[0]:
        raise ArcmaskError(f"the mask id is {mask_id}, but the table has rows 0 to {table.shape[0] - 1}")
