"""Soft-masking of a batch (Algorithm 3): the input embeddings of masked positions, from the last prediction.

This module knows tokens, predictions and an embedding table, not the model. The `Feedback` record has values for logs.

Shapes: B sequences, L positions, V vocabulary, D width, M masked positions (in the order of the flattened tokens),
K candidates.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from arcmask import sphere
from arcmask.candidates import Candidates, top_candidates
from arcmask.errors import ArcmaskError, check_band, check_range, unknown_name
from arcmask.feedback.calibration import draft_entropies
from arcmask.feedback.confidence import MEAN_WEIGHT, Confidence
from arcmask.feedback.registry import OPERATORS, Function, Operator, default_colour, find_operator
from arcmask.rows import Rows

BAND = (0.2, 0.8)  # the paper's, and that of checkpoints that do not say
_SETTINGS = ("operator", "top_k", "karcher_steps", "confidence")
_BAND = "band"  # checkpoints of earlier versions have none
_HASH = "operator_sha256"  # of the source of an operator from outside the package


@dataclass(frozen=True)
class Feedback:
    """The input embeddings of the next pass, and the values that they were computed from.

    The angles are computed when they are read, unless the operator has computed the first one already.
    """

    embeddings: Tensor  # (B, L, D), in the table's dtype
    weight: Tensor  # (M,)
    mask: Tensor  # (D,), without gradient, as all below
    candidates: Tensor  # (M, K, D) embeddings
    probs: Tensor  # (M, K)
    karcher_steps: int
    operator_angle: Tensor | None = None  # (M,), from the operator's `with_angle`

    @property
    def angle(self) -> Tensor:
        """(M,) radians between the mask and the Fréchet mean."""
        if self.operator_angle is not None:
            return self.operator_angle
        candidates, probs, mask = self._in_float32()
        return sphere.angle(mask, sphere.frechet_mean(candidates, probs, self.karcher_steps))

    @property
    def euclidean_angle(self) -> Tensor:
        """(M,) radians between the mask and the Euclidean mean, the paper's diagnostic."""
        candidates, probs, mask = self._in_float32()
        return sphere.angle(mask, sphere.combine(probs, candidates))

    def _in_float32(self) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.promote_types(self.mask.dtype, torch.float32)
        return self.candidates.to(dtype), self.probs.to(dtype), self.mask.to(dtype)


class SoftMask(nn.Module):
    """Feedback from one prediction to the next input: an operator, the number of candidates and a confidence.

    `operator` is a name, FILE.py:FUNCTION, or a function of mask (D,), candidates (M, K, D), probs (M, K) and weight
    (M,) that returns embeddings (M, D). `band` is the interval of times at which a sampler uses the feedback by
    default: the one that it was trained in.

    >>> import torch
    >>> from arcmask.feedback import Confidence, SoftMask
    >>> soft_mask = SoftMask("spherical", top_k=2, confidence=Confidence(fixed=0.5))
    >>> tokens, logits, table = torch.tensor([[0, 3]]), torch.randn(1, 2, 4), torch.randn(4, 8)
    >>> feedback = soft_mask(tokens, logits, table, mask_id=3)
    >>> feedback.embeddings.shape, feedback.weight
    (torch.Size([1, 2, 8]), tensor([0.5000]))
    """

    def __init__(
        self,
        operator: str | Function | Operator = "spherical",
        top_k: int = 3,
        karcher_steps: int = 3,
        confidence: Confidence | None = None,
        band: tuple[float, float] = BAND,
    ) -> None:
        super().__init__()
        check_band(band)
        self.band = band
        self.record = find_operator(operator)
        self.operator = self.record.name
        self.top_k = top_k
        self.karcher_steps = karcher_steps
        check_range(1, 10**6, self, "top_k")
        check_range(0, 1000, self, "karcher_steps")
        self.confidence = Confidence() if confidence is None else confidence

    @classmethod
    def calibrated(
        cls,
        denoiser: Any,
        rows: Rows,
        operator: str | Function | Operator = "spherical",
        top_k: int = 3,
        karcher_steps: int = 3,
        *,
        scale: float = 0.5,
        mean_weight: float = MEAN_WEIGHT,
        band: tuple[float, float] = BAND,
        seed: int = 0,
    ) -> Self:
        """Return feedback whose confidence fits a denoiser: its mean weight on rows (N, L) of text is `mean_weight`.

        One draft pass measures the entropies of up to 512 masked positions, at times in the band.

        >>> import torch
        >>> import arcmask
        >>> from arcmask.feedback import SoftMask
        >>> rows = torch.randint(0, 27, (16, 128), generator=torch.Generator().manual_seed(0))
        >>> soft_mask = SoftMask.calibrated(arcmask.load("sotu-tiny"), rows, "linear")
        >>> soft_mask.operator, soft_mask.confidence.centre.item() < 0
        ('linear', True)
        """
        entropy = draft_entropies(denoiser, rows, band=band, seed=seed)
        confidence = Confidence.calibrated(entropy, scale, mean_weight)
        feedback = cls(operator, top_k, karcher_steps, confidence, band)
        return feedback.to(denoiser.table.device)

    def forward(self, tokens: Tensor, logits: Tensor, table: Tensor, mask_id: int) -> Feedback:
        """Return the next input from tokens (B, L), raw logits (B, L, V) or (M, V), a table (V, D) and the mask's id.

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
        self,
        tokens: Tensor,
        candidates: Candidates,
        table: Tensor,
        mask_id: int,
        positions: Tensor | None = None,
        *,
        angle: bool = True,
    ) -> Feedback:
        """Return the next input from candidates, one row for each masked position.

        `positions` (B, L) restricts the candidates to some masked positions; the others keep the mask's embedding.
        Without `angle` the operator does not return its angle; `Feedback.angle` is then computed when it is read.
        """
        _check(tokens, table, mask_id)
        masked = tokens == mask_id
        if positions is not None:
            masked = masked & positions
        # One transfer for both numbers, since a GPU waits for each.
        count, is_good = torch.stack([masked.sum(), candidates.entropy.isfinite().all()]).tolist()
        if not is_good:
            candidates.check()
        if len(candidates) != count:
            raise ArcmaskError(
                f"there are predictions for {len(candidates)} positions, but {count} positions are masked"
            )
        # One look-up for tokens, candidates and mask: its backward pass fills a (V, D) gradient once, not three times.
        ids = candidates.ids
        all_ids = torch.cat([tokens.flatten(), ids.flatten(), tokens.new_full((1,), mask_id)])
        embeddings, points, mask = embedding(all_ids, table).split([tokens.numel(), ids.numel(), 1])
        points, mask = points.unflatten(0, ids.shape), mask[0]
        weight = self.confidence(candidates.entropy)
        blended, angles = self.record.blend(mask, points, candidates.probs, weight, self.karcher_steps, angle=angle)
        embeddings = embeddings.unflatten(0, tokens.shape).masked_scatter(masked.unsqueeze(-1), blended)
        return Feedback(
            embeddings=embeddings,
            weight=weight,
            mask=mask.detach(),
            candidates=points.detach(),
            probs=candidates.probs,
            karcher_steps=self.karcher_steps,
            operator_angle=angles,
        )

    def settings(self, *, with_band: bool = True) -> dict[str, Any]:
        """Return the feedback as plain data; `from_settings` restores it exactly."""
        confidence = {name: value.item() for name, value in self.confidence.named_parameters()}
        return {
            "operator": self.operator,
            "top_k": self.top_k,
            "karcher_steps": self.karcher_steps,
            "confidence": confidence or {"fixed": self.confidence.fixed},
            **({_BAND: list(self.band)} if with_band else {}),
            **({} if self.record.is_ours else {_HASH: self.record.sha256}),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Restore what `settings` returned; a missing or unknown entry is an error that names it.

        An operator from outside the package must have been registered by the user; no file is imported here.
        """
        if set(settings) - {_HASH, _BAND} != set(_SETTINGS):
            raise ArcmaskError(f"feedback settings are {sorted(settings)}, but must be {sorted(_SETTINGS)}")
        for key in ("top_k", "karcher_steps"):
            if type(settings[key]) is not int:
                raise ArcmaskError(f"{key} is {settings[key]!r}, but must be a whole number")
        name = str(settings["operator"])
        if name in OPERATORS:
            record = OPERATORS[name]
        elif _HASH in settings:
            record = Operator(name, None, label=name, colour=default_colour(name), sha256=settings[_HASH])
        else:
            raise unknown_name("operator", name, OPERATORS)
        if settings.get(_HASH, record.sha256) != record.sha256:
            warnings.warn(f"the operator {name} has changed since the checkpoint was trained", stacklevel=2)
        confidence = Confidence.from_settings(settings["confidence"])
        return cls(record, settings["top_k"], settings["karcher_steps"], confidence, tuple(settings.get(_BAND, BAND)))

    def extra_repr(self) -> str:
        return f"operator={self.operator!r}, top_k={self.top_k}, karcher_steps={self.karcher_steps}"


def _check(tokens: Tensor, table: Tensor, mask_id: int) -> None:
    if tokens.ndim != 2:
        raise ArcmaskError(f"tokens must have the shape (B, L), but they have {tuple(tokens.shape)}")
    if table.ndim != 2:
        raise ArcmaskError(f"the embedding table must have the shape (V, D), but it has {tuple(table.shape)}")
    if not 0 <= mask_id < table.shape[0]:
        raise ArcmaskError(f"the mask id is {mask_id}, but the table has rows 0 to {table.shape[0] - 1}")
