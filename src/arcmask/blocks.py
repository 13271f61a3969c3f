"""The number of rows to work on at a time, by device.

On a CPU a block should stay in the cache from one operation to the next. A GPU is faster with fewer, larger launches.
"""

from typing import Protocol


class _Device(Protocol):
    @property
    def type(self) -> str: ...


def block_rows(device: _Device, width: int, *, cpu: int, gpu: int) -> int:
    """Return how many rows of `width` numbers fit in a block: at least 1, and about `cpu` or `gpu` numbers in all.

    >>> import torch
    >>> from arcmask.blocks import block_rows
    >>> [block_rows(torch.device(name), 50_000, cpu=1 << 18, gpu=1 << 25) for name in ("cpu", "cuda")]
    [5, 671]
    """
    return max(1, (cpu if device.type == "cpu" else gpu) // width)
