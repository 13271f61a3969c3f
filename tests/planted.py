"""Made-up models whose geometry and predictions are known, for the diagnostics to find."""

import math
import random
from pathlib import Path

import torch
from torch import Tensor

from arcmask.candidates import Candidates
from arcmask.diagnostics.predictions import Predictions


class Constant:
    """A denoiser that predicts the same at every position, whatever it is given; the mask is the table's last row."""

    max_length, feedback, tokenizer = None, None, None

    def __init__(self, table: Tensor, logits: Tensor) -> None:
        self.table, self._logits = table, logits
        self.mask_id = len(table) - 1

    def hidden(self, embeddings: Tensor) -> Tensor:
        return embeddings

    def logits(self, hidden_rows: Tensor) -> Tensor:
        return self._logits.expand(len(hidden_rows), -1).clone()


def on_a_circle(*degrees: float, radius: float = 1.0) -> Tensor:
    """Points (n, 4) in one plane, at these angles from the last one, which stands for the mask."""
    radians = torch.tensor([*degrees, 0.0], dtype=torch.float64).deg2rad()
    return radius * torch.stack([radians.cos(), radians.sin(), 0 * radians, 0 * radians], dim=1)


def certain(ids: list[list[int]], probs: list[list[float]], entropy: float = 0.0, time: float = 0.5) -> Predictions:
    """Predictions that say these candidates with these probabilities."""
    found = Candidates(
        ids=torch.tensor(ids),
        probs=torch.tensor(probs, dtype=torch.float64),
        entropy=torch.full((len(ids),), entropy, dtype=torch.float64),
    )
    return Predictions(time=time, targets=found.ids[:, 0], candidates=found)


def random_predictions(table: Tensor, count: int = 50, k: int = 3, seed: int = 0, time: float = 0.5) -> Predictions:
    """Candidates and probabilities out of a seed; the mask is the table's last row and never among them."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(len(table) - 1, generator=draw)[:k] for _ in range(count)])
    probs = (2 * torch.randn(count, k, generator=draw, dtype=torch.float64)).softmax(-1)
    entropy = math.log(len(table)) * torch.rand(count, generator=draw, dtype=torch.float64)
    candidates = Candidates(ids=ids, probs=probs.sort(descending=True).values, entropy=entropy)
    return Predictions(time=time, targets=ids[:, -1], candidates=candidates)


def write_texts(folder: Path, words: list[str], seed: int = 0) -> Path:
    """Twenty texts out of these words."""
    draw = random.Random(seed)
    for number in range(20):
        (folder / f"{number:02d}.txt").write_text(" ".join(draw.choice(words) for _ in range(300)))
    return folder
