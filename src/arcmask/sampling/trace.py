"""What happened in a run, step by step: what each masked position was predicted, was given, and became.

Only numbers are kept, and they are rounded when written: a trace of 64 steps and 128 positions is far below a megabyte.

Shapes: B sequences, L positions, M positions that are fed back, K candidates.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback.soft_mask import Feedback

# What is measured of a position that is fed back, in the order of the last dimension of `TraceStep.fed`.
MEASURES = ("weight", "angle", "euclidean_angle", "euclidean_norm", "turned", "norm")


@dataclass(frozen=True)
class TraceStep:
    """One step. Rows of unmasked positions mean nothing."""

    time: Tensor  # (B,)
    tokens: Tensor  # (B, L) before the step
    fed: Tensor  # (B, L, 6), the `MEASURES` of the feedback in its input; weight 0 and NaN where there was none
    ids: Tensor  # (B, L, K) predicted in the step
    probs: Tensor  # (B, L, K), which sum to one
    share: Tensor  # (B, L), the part of the whole prediction that these K have
    entropy: Tensor  # (B, L)
    called: Tensor  # (B,) whether the denoiser was run

    @property
    def weight(self) -> Tensor:
        """(B, L) of the feedback in the step's input; 0 where there was none."""
        return self.fed[..., 0]

    @property
    def angle(self) -> Tensor:
        """(B, L) radians between mask and Fréchet mean of what was fed back; NaN where nothing was."""
        return self.fed[..., 1]


@dataclass
class Trace:
    """All steps of a batch, and its result."""

    mask_id: int
    steps: list[TraceStep] = field(default_factory=list)
    tokens: Tensor | None = None  # (B, L) at the end
    filled: Tensor | None = None  # (B, L) what no step had revealed and the last, greedy pass filled in

    def to_json(self, sequence: int = 0) -> dict[str, Any]:
        """One sequence as plain data, rounded.

        A masked position of a step is [position, weight, angle, entropy, ids, probs, share, blend]. The blend is None
        where nothing was fed back, and otherwise [euclidean_angle, euclidean_norm, turned, norm]: of the candidates'
        Euclidean mean, then of the embedding that was fed back. Norms are in units of the mask's.
        """
        assert self.tokens is not None
        assert self.filled is not None
        after = [step.tokens[sequence] for step in self.steps[1:]]
        after.append(self.tokens[sequence].masked_fill(self.filled[sequence], self.mask_id))
        return {
            "tokens": self.tokens[sequence].tolist(),
            "start": self.steps[0].tokens[sequence].tolist(),
            "filled": self.filled[sequence].nonzero().flatten().tolist(),
            "steps": [self._step(step, sequence, then) for step, then in zip(self.steps, after, strict=True)],
        }

    def _step(self, step: TraceStep, sequence: int, after: Tensor) -> dict[str, Any]:
        masked = step.tokens[sequence] == self.mask_id
        positions = masked.nonzero().flatten()
        revealed = (masked & (after != self.mask_id)).nonzero().flatten()
        fed = step.fed[sequence, positions]
        columns = (
            positions.tolist(),
            _rounded(fed[:, 0], 4),
            [None if angle != angle else angle for angle in _rounded(fed[:, 1], 4)],
            _rounded(step.entropy[sequence, positions], 3),
            step.ids[sequence, positions].tolist(),
            [_rounded(row, 3) for row in step.probs[sequence, positions]],
            _rounded(step.share[sequence, positions], 3),
            [None if bool(row.isnan().any()) else _rounded(row, 4) for row in fed[:, 2:]],
        )
        return {
            "time": round(step.time[sequence].item(), 5),
            "called": bool(step.called[sequence]),
            "revealed": [list(pair) for pair in zip(revealed.tolist(), after[revealed].tolist(), strict=True)],
            "masked": [list(row) for row in zip(*columns, strict=True)],
        }

    def dumps(self, sequence: int = 0) -> str:
        """The same as text, without a space too many."""
        return json.dumps(self.to_json(sequence), separators=(",", ":"))


def nothing_fed(*shape: int) -> Tensor:
    """(*shape, 6): the measures of positions that get the bare mask embedding."""
    fed = torch.full((*shape, len(MEASURES)), torch.nan, dtype=torch.float64)
    fed[..., 0] = 0.0
    return fed


def measure(feedback: Feedback, positions: Tensor) -> Tensor:
    """(M, 6): the measures of the feedback at its positions (B, L)."""
    blend = feedback.embeddings[positions].double()
    mask = feedback.mask.double()
    mean = sphere.combine(feedback.probs.double(), feedback.candidates.double())
    norm = torch.linalg.vector_norm(mask)
    columns = (
        feedback.weight,
        feedback.angle,
        sphere.angle(mask, mean),
        torch.linalg.vector_norm(mean, dim=-1) / norm,
        sphere.angle(mask, blend),
        torch.linalg.vector_norm(blend, dim=-1) / norm,
    )
    return torch.stack([column.double() for column in columns], dim=-1).cpu()


def held_share(logits: Tensor, ids: Tensor, exclude: int) -> Tensor:
    """(M, V), (M, K) -> (M,): the part of each prediction that some ids have, where one id has none."""
    wide = logits.double()
    wide[:, exclude] = -torch.inf
    return torch.exp(wide.gather(1, ids).logsumexp(-1) - wide.logsumexp(-1)).cpu()


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.to(torch.float64).tolist()]
