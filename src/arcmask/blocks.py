"""How work reaches a device: the number of rows at a time, and copies that do not block.

On a CPU a block should stay in the cache from one operation to the next. A GPU is faster with fewer, larger launches.
"""

from typing import Any, Protocol, TypeVar


class _Device(Protocol):
    @property
    def type(self) -> str: ...


_Movable = TypeVar("_Movable", bound=Any)


def send(values: _Movable, device: Any, *dtype: Any) -> _Movable:
    """Copy a tensor or rows from the host to a device without blocking.

    Use it in this direction alone: a copy back to the host must block.
    """
    moved: _Movable = values.to(device, *dtype, non_blocking=True)
    return moved


def block_rows(device: _Device, width: int, *, cpu: int, gpu: int) -> int:
    """Return how many rows of `width` numbers fit in a block: at least 1, and about `cpu` or `gpu` numbers in all.

    >>> import torch
    >>> from arcmask.blocks import block_rows
    >>> [block_rows(torch.device(name), 50_000, cpu=1 << 18, gpu=1 << 25) for name in ("cpu", "cuda")]
    [5, 671]
    """
    return max(1, (cpu if device.type == "cpu" else gpu) // width)
