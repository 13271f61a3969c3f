"""The noise schedule: how much of a text is left at a time, and how fast that falls."""

from torch import Tensor


def linear(time: Tensor) -> tuple[Tensor, Tensor]:
    """Times -> (alpha, d alpha / d t): alpha = 1 - t is the share of tokens that are not masked."""
    return 1 - time, time.new_full(time.shape, -1.0)
