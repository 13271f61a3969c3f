"""The random part of a training step: its times, its masks, and the gate that decides whether it uses feedback.

Everything is drawn from (seed, step) alone, for the whole global batch. Each rank and micro-batch takes its share, so
all ranks decide alike, and the arms of a comparison share their draws.

Shapes: B sequences of the global batch, L positions.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, check_band, check_choice

BandReading = Literal["batch-mean", "draw"]


@dataclass(frozen=True)
class StepDraw:
    """The draws of one optimiser step."""

    time: Tensor  # (B,)
    uniform: Tensor  # (B, L); a position is masked if its number is below the time
    feedback: bool  # whether the step uses feedback

    @property
    def masked(self) -> Tensor:
        """The masked positions (B, L); under alpha = 1 - t each is masked with probability t."""
        return self.uniform < self.time.unsqueeze(1)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Decide whether a training step uses feedback: with a probability, and within a band of times.

    The paper describes the band in two ways. In its appendix ("batch-mean") a step may use feedback only if the mean
    time of the global batch lies in the band. With antithetic times that mean always lies in [0.25, 0.75], so the
    default band excludes no step. In its main text ("draw") a step with feedback draws its times from the band.

    >>> from arcmask.feedback import Gate
    >>> draw = Gate(probability=1.0).draw(seed=0, step=1, batch=4, length=8)
    >>> draw.feedback, draw.time.shape, draw.masked.shape
    (True, torch.Size([4]), torch.Size([4, 8]))
    """

    probability: float = 0.5
    band: tuple[float, float] = (0.2, 0.8)
    reading: BandReading = "batch-mean"
    least_time: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ArcmaskError(f"the gate's probability is {self.probability}, but must lie between 0 and 1")
        check_band(self.band)
        check_choice("reading of the band", self.reading, get_args(BandReading))
        if not 0 < self.least_time < 1:
            raise ArcmaskError(f"the least time is {self.least_time}, but must lie between 0 and 1")

    def draw(self, seed: int, step: int, batch: int, length: int) -> StepDraw:
        """Return the draws of a step for a global batch of `batch` sequences with `length` positions."""
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
