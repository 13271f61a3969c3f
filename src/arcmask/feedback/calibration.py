"""Entropies of a denoiser's draft pass at masked positions: what a confidence is calibrated on and watched by.

Shapes: N rows, L positions, M masked positions.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from arcmask.candidates import top_candidates
from arcmask.errors import ArcmaskError
from arcmask.feedback.gate import Gate
from arcmask.rows import Rows, attention_mask_of, hidden_of, maskable_of, tokens_of

POSITIONS = 512  # masked positions that are measured, at most
_PASS = 2048  # positions in one pass of the denoiser
_LEAST_ROWS = 4


def rows_to_measure(length: int) -> int:
    """Return how many rows of a length have enough masked positions: about 2,000 tokens, four rows or more."""
    return max(_LEAST_ROWS, -(-_PASS // length))


@torch.no_grad()
def draft_entropies(denoiser: Any, rows: Rows, *, band: tuple[float, float] = (0.2, 0.8), seed: int = 0) -> Tensor:
    """Return the entropies (M,) in nats of a denoiser's predictions for clean rows (N, L), in float64 on the CPU.

    Times lie in the band, one in each of N equal parts of it. Times and masks are drawn from the seed. M is at most
    512; of more masked positions, those that are measured are spread evenly. `denoiser` is an `arcmask.Denoiser`, in
    evaluation mode while it is measured.
    """
    if rows.ndim != 2 or not rows.numel():
        raise ArcmaskError(f"rows must have the shape (N, L) and not be empty, but they have {tuple(rows.shape)}")
    masked = maskable_of(rows, Gate(probability=1.0, band=band, reading="draw").draw(seed, 0, *rows.shape).masked)
    places = masked.flatten().nonzero().squeeze(1)
    if not len(places):
        raise ArcmaskError(f"none of the {rows.numel()} tokens is masked at times in the band {band}; use more rows")
    chosen = torch.zeros_like(masked).flatten()
    count = min(POSITIONS, len(places))
    chosen[places[torch.arange(count) * len(places) // count]] = True
    chosen = chosen.view_as(masked)
    table, was_training = denoiser.table, isinstance(denoiser, nn.Module) and denoiser.training
    if was_training:
        denoiser.eval()
    try:
        height, parts = max(1, _PASS // rows.shape[1]), []
        for batch in (slice(start, start + height) for start in range(0, len(rows), height)):
            part = rows[batch].to(table.device)
            tokens = tokens_of(part).masked_fill(masked[batch].to(table.device), denoiser.mask_id)
            hidden = hidden_of(denoiser, embedding(tokens, table), attention_mask_of(part))
            hidden = hidden[chosen[batch].to(table.device)]
            if len(hidden):
                parts.append(top_candidates(denoiser.logits(hidden), 1, exclude=denoiser.mask_id).check().entropy)
    finally:
        if was_training:
            denoiser.train()
    return torch.cat(parts).double().cpu()
