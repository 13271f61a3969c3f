"""The gate: does this training step use feedback? And with it all that is random about a step, from (seed, step) alone.

Every rank, every micro-batch and every arm of a comparison draws the whole global batch's times, masks and decision and
takes its share, so that all decide alike and differences between arms are paired.

Shapes: B sequences of the global batch, L positions.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, unknown_name

BandReading = Literal["batch-mean", "draw"]
_READINGS = ("batch-mean", "draw")


@dataclass(frozen=True)
class StepDraw:
    """One optimiser step's chance: times (B,), numbers (B, L) below which a position is masked, and the decision."""

    time: Tensor
    uniform: Tensor
    feedback: bool

    @property
    def masked(self) -> Tensor:
        """(B, L): under alpha = 1 - t a position is masked with probability t."""
        return self.uniform < self.time.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Feedback with a probability, within a band of times.

    The paper reads its band in two ways. By its appendix ("batch-mean") a step may use feedback only if the mean time
    of the global batch lies in the band; with antithetic times that mean always lies in [0.25, 0.75], so that the
    default band never excludes a step. By its main text ("draw") a step with feedback draws its times from the band.
    """

    probability: float = 0.5
    band: tuple[float, float] = (0.2, 0.8)
    reading: BandReading = "batch-mean"
    least_time: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ArcmaskError(f"the gate's probability is {self.probability}, but must lie between 0 and 1")
        if not 0 <= self.band[0] < self.band[1] <= 1:
            raise ArcmaskError(f"the band is {self.band}, but must be two rising numbers between 0 and 1")
        if self.reading not in _READINGS:
            raise unknown_name("reading of the band", self.reading, _READINGS)
        if not 0 < self.least_time < 1:
            raise ArcmaskError(f"the least time is {self.least_time}, but must lie between 0 and 1")

    def draw(self, seed: int, step: int, batch: int, length: int) -> StepDraw:
        """All that is random about a step for a global batch of that size."""
        stream = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, step))))
        open_ = bool(stream.random() < self.probability)
        # Antithetic: one time in each of B equal parts of the range.
        unit = (stream.random(batch) + np.arange(batch)) / batch
        low, high = (self.least_time, 1.0)
        if open_ and self.reading == "draw":
            low, high = self.band
        time = torch.from_numpy(low + (high - low) * unit)
        if self.reading == "batch-mean":
            open_ = open_ and self.band[0] <= float(time.mean()) <= self.band[1]
        return StepDraw(time=time, uniform=torch.from_numpy(stream.random((batch, length))), feedback=open_)
