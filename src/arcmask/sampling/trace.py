"""What happened in a run, step by step: what each masked position was predicted, was given, and became.

Only numbers are kept, and they are rounded when written: a trace of 64 steps and 128 positions is far below a megabyte.

Shapes: B sequences, L positions, K candidates.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TraceStep:
    """One step. Rows of unmasked positions mean nothing."""

    time: Tensor  # (B,)
    tokens: Tensor  # (B, L) before the step
    weight: Tensor  # (B, L) of the feedback in its input; 0 where there was none
    angle: Tensor  # (B, L) radians between mask and Fréchet mean of what was fed back; NaN where nothing was
    ids: Tensor  # (B, L, K) predicted in the step
    probs: Tensor  # (B, L, K)
    entropy: Tensor  # (B, L)
    called: Tensor  # (B,) whether the denoiser was run


@dataclass
class Trace:
    """All steps of a batch, and its result."""

    mask_id: int
    steps: list[TraceStep] = field(default_factory=list)
    tokens: Tensor | None = None  # (B, L) at the end

    def to_json(self, sequence: int = 0) -> dict[str, Any]:
        """One sequence as plain data; a masked position of a step is [position, weight, angle, entropy, ids, probs]."""
        steps = []
        for step in self.steps:
            positions = (step.tokens[sequence] == self.mask_id).nonzero().flatten()
            columns = (
                positions.tolist(),
                _rounded(step.weight[sequence, positions], 4),
                [None if angle != angle else angle for angle in _rounded(step.angle[sequence, positions], 3)],
                _rounded(step.entropy[sequence, positions], 3),
                step.ids[sequence, positions].tolist(),
                [_rounded(row, 3) for row in step.probs[sequence, positions]],
            )
            steps.append(
                {
                    "time": round(step.time[sequence].item(), 5),
                    "called": bool(step.called[sequence]),
                    "masked": [list(row) for row in zip(*columns, strict=True)],
                }
            )
        assert self.tokens is not None
        return {
            "tokens": self.tokens[sequence].tolist(),
            "start": self.steps[0].tokens[sequence].tolist(),
            "steps": steps,
        }

    def dumps(self, sequence: int = 0) -> str:
        """The same as text, without a space too many."""
        return json.dumps(self.to_json(sequence), separators=(",", ":"))


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.to(torch.float64).tolist()]
