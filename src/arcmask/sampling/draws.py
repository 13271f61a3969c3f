"""The random numbers of samples. Each sample has its own stream, which depends only on the seed and its index.

Every step takes the same number of values from a stream. So the draws of a sample do not depend on its batch, on
restarts or on the feedback, and the arms of a comparison share them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError


class Draws:
    """Uniform float64 numbers in [0, 1) for a batch of samples, (B, ...) at a time.

    `lengths` are those of samples that differ in length: each takes as many numbers as if it were alone.
    """

    def __init__(self, seed: int, indices: Sequence[int], lengths: Sequence[int] | None = None) -> None:
        if not 0 <= seed < 2**64:
            raise ArcmaskError(f"the seed is {seed}, but must lie between 0 and 2**64 - 1")
        self._streams = [np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, i)))) for i in indices]
        self._lengths = lengths

    def uniform(self, *shape: int) -> Tensor:
        """Return the next numbers of every stream, (B, *shape). With lengths, the last dimension is the positions."""
        if self._lengths is None:
            return torch.from_numpy(np.stack([stream.random(shape) for stream in self._streams]))
        numbers = np.ones((len(self._streams), *shape))
        for row, stream, length in zip(numbers, self._streams, self._lengths, strict=True):
            row[..., :length] = stream.random((*shape[:-1], length))
        return torch.from_numpy(numbers)
