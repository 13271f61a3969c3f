"""The trace of a run: for each step, the prediction and the feedback at every masked position, and the tokens.

A trace holds numbers only. They are rounded when written: 64 steps of 128 positions take less than a megabyte.

Shapes: B sequences, L positions, M positions with feedback, K candidates.
"""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arcmask import sphere
from arcmask.feedback.soft_mask import Feedback

# The measures of a position with feedback, in the order of the last dimension of `TraceStep.measures`.
MEASURES = ("weight", "angle", "euclidean_angle", "euclidean_norm", "turned", "norm")


@dataclass(frozen=True)
class TraceStep:
    """One step. Only the values of masked positions are meaningful."""

    time: Tensor  # (B,)
    tokens: Tensor  # (B, L), before the step
    measures: Tensor  # (B, L, 6), the `MEASURES` of the feedback in the step's input; without feedback 0, then NaN
    ids: Tensor  # (B, L, K), candidates of the step's prediction
    probs: Tensor  # (B, L, K), which sum to one
    share: Tensor  # (B, L), the total probability of the candidates
    entropy: Tensor  # (B, L)
    called: Tensor  # (B,), whether the denoiser was run

    @property
    def weight(self) -> Tensor:
        """The feedback weights (B, L) in the step's input; 0 without feedback."""
        return self.measures[..., 0]


@dataclass
class Trace:
    """All steps of a batch, and its result.

    >>> import arcmask
    >>> samples = arcmask.sample(arcmask.load("sotu-tiny"), length=16, steps=4, trace=True)
    >>> len(samples.traces[0].steps), samples.traces[0].steps[0].entropy.shape
    (4, torch.Size([1, 16]))
    """

    mask_id: int
    steps: list[TraceStep] = field(default_factory=list)
    tokens: Tensor | None = None  # (B, L), at the end
    filled: Tensor | None = None  # (B, L), positions that no step revealed and the last pass filled

    def to_json(self, sequence: int = 0) -> dict[str, Any]:
        """Return one sequence as plain data, rounded.

        A masked position of a step is [position, weight, angle, entropy, ids, probs, share, blend]. Without feedback
        the blend is None. With feedback it is [euclidean_angle, euclidean_norm, turned, norm]: the angle and norm of
        the candidates' Euclidean mean, then of the blended embedding. Norms are relative to the mask's norm.
        """
        assert self.tokens is not None
        assert self.filled is not None
        after = [step.tokens[sequence] for step in self.steps[1:]]
        after.append(self.tokens[sequence].masked_fill(self.filled[sequence], self.mask_id))
        return {
            "tokens": self.tokens[sequence].tolist(),
            "start": self.steps[0].tokens[sequence].tolist(),
            "filled": self.filled[sequence].nonzero().flatten().tolist(),
            "steps": [self._step(step, sequence, tokens) for step, tokens in zip(self.steps, after, strict=True)],
        }

    def dumps(self, sequence: int = 0) -> str:
        """Return `to_json` as compact text."""
        return json.dumps(self.to_json(sequence), separators=(",", ":"))

    def _step(self, step: TraceStep, sequence: int, after: Tensor) -> dict[str, Any]:
        masked = step.tokens[sequence] == self.mask_id
        positions = masked.nonzero().flatten()
        revealed = (masked & (after != self.mask_id)).nonzero().flatten()
        measures = step.measures[sequence, positions]
        columns = (
            positions.tolist(),
            _rounded(measures[:, 0], 4),
            [None if math.isnan(angle) else angle for angle in _rounded(measures[:, 1], 4)],
            _rounded(step.entropy[sequence, positions], 3),
            step.ids[sequence, positions].tolist(),
            [_rounded(row, 3) for row in step.probs[sequence, positions]],
            _rounded(step.share[sequence, positions], 3),
            [None if bool(row.isnan().any()) else _rounded(row, 4) for row in measures[:, 2:]],
        )
        return {
            "time": round(step.time[sequence].item(), 5),
            "called": bool(step.called[sequence]),
            "revealed": [list(pair) for pair in zip(revealed.tolist(), after[revealed].tolist(), strict=True)],
            "masked": [list(row) for row in zip(*columns, strict=True)],
        }


def empty_measures(*shape: int) -> Tensor:
    """Return the measures (*shape, 6) of positions without feedback: weight 0, and NaN for the others."""
    measures = torch.full((*shape, len(MEASURES)), torch.nan, dtype=torch.float64)
    measures[..., 0] = 0.0
    return measures


def measure(feedback: Feedback, positions: Tensor) -> Tensor:
    """Return the measures (M, 6) of the feedback at its positions (B, L)."""
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


def probability_of(ids: Tensor, logits: Tensor, exclude: int) -> Tensor:
    """Return the total probability (M,) of ids (M, K) under logits (M, V), where `exclude` has probability 0."""
    wide = logits.double()
    wide[:, exclude] = -torch.inf
    return torch.exp(wide.gather(1, ids).logsumexp(-1) - wide.logsumexp(-1)).cpu()


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.to(torch.float64).tolist()]
