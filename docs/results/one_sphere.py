"""Put the mask and all tokens of `sotu-tiny` on one sphere, as the paper describes them, and heal the model.

In `sotu-tiny` the mask's embedding is half as long as those of the tokens. Here all rows of the table are scaled to the
tokens' mean norm, and the model is trained on without feedback. After every step the rows are scaled again.
factorial.py measures the result under the name `sotu-sphere`.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

import arcmask
from arcmask.feedback import Gate
from arcmask.objective import TwoPass

STEPS, ROWS, WARM_UP, RATE = 400, 16, 20, 1e-3


def healed(folder: Path, corpus: Any) -> Any:
    """Open the healed model in a folder; train it on a prepared corpus first if it is not there."""
    if not folder.exists():
        denoiser = arcmask.load("sotu-tiny")
        heal(denoiser, corpus)
        denoiser.save(folder)
    return arcmask.load(folder)


def heal(denoiser: Any, corpus: Any) -> None:
    """Train a denoiser whose embeddings all have the mean norm of its tokens."""
    denoiser.eval().requires_grad_(True)  # without dropout
    is_token = torch.arange(len(denoiser.table)) != denoiser.mask_id
    radius = float(denoiser.table[is_token].norm(dim=1).mean())
    scale_to(denoiser.table, radius)
    objective, gate, numbers = TwoPass(denoiser, None), Gate(probability=0.0), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * step / STEPS))
    )
    for step in range(STEPS):
        rows = corpus.rows(numbers.integers(len(corpus), size=ROWS))
        draw = gate.draw(0, step, *rows.shape)
        loss = objective(rows, draw.time.float(), draw.masked, feedback=False).loss / rows.numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        scale_to(denoiser.table, radius)
        if (step + 1) % 50 == 0:
            print(f"healing: step {step + 1} of {STEPS}, loss {loss.item():.3f}", flush=True)


@torch.no_grad()
def scale_to(table: torch.Tensor, radius: float) -> None:
    """Scale the rows of a table (V, D) to one norm."""
    table.mul_(radius / table.norm(dim=1, keepdim=True))
