"""The noise schedule."""

from torch import Tensor


def linear(time: Tensor) -> tuple[Tensor, Tensor]:
    """Return alpha = 1 - t, the share of tokens that are not masked at times t, and its derivative (same shape)."""
    return 1 - time, time.new_full(time.shape, -1.0)
