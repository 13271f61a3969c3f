"""The random numbers of each sample: a stream of its own, from (seed, index) alone.

Every step takes the same count of numbers from a stream whatever happens in it, so that a sample's draws do not depend
on the batch it is in, on restarts, or on how it is fed back: arms of a comparison share them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError


class Draws:
    """Uniform float64 numbers in [0, 1) for a batch of samples, (B, ...) at a time."""

    def __init__(self, seed: int, indices: Sequence[int]) -> None:
        if not 0 <= seed < 2**64:
            raise ArcmaskError(f"the seed is {seed}, but must lie between 0 and 2**64 - 1")
        self._streams = [np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, i)))) for i in indices]

    def uniform(self, *shape: int) -> Tensor:
        """(B, *shape), the next numbers of every stream."""
        return torch.from_numpy(np.stack([stream.random(shape) for stream in self._streams]))
