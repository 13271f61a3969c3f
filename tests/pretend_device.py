"""A device that is not there: tensors that say they live elsewhere, compute on the CPU, and refuse CPU tensors.

Inside `pretend_device()`, `.to(DEVICE)` and factories with `device=DEVICE` return such tensors. An operation that mixes
them with CPU tensors raises `MixedDevicesError`, as a GPU would; 0-dimensional CPU tensors count as numbers. The
context returns a record that counts:

- kernels: operations that compute. Views and empty tensors are free. One kernel stands for what a GPU may split.
- waits: operations that make the host wait for the device: `.item()`, `.tolist()`, `.cpu()`, `nonzero`, a mask as an
  index, others whose result has a size that only the device knows, and copies to the device without `non_blocking`.
- copies: transfers from the host to the device.

The device is called `meta`: a CPU build of torch has no device guard for `cuda`. The context also stands in for what
torch does not offer for `meta` (autocast, fused attention, tensors from Python numbers) or for wrapped tensors (the
inference mode).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
_aten = torch.ops.aten
_FREE = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided}
_FREE |= {_aten._unsafe_view, _aten._local_scalar_dense}
_WAITS = {
    _aten._local_scalar_dense,
    _aten.nonzero,
    _aten.masked_select,
    _aten.equal,
    _aten.bincount,
    _aten._unique2,
    _aten.unique_dim,
    _aten.unique_consecutive,
    _aten.repeat_interleave,
}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}


class MixedDevicesError(RuntimeError):
    """An operation had tensors of both devices."""


@dataclass
class Counts:
    """What was done on the device, by the names of the operations."""

    kernels: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    copies: int = 0

    def reset(self) -> None:
        """Count from here."""
        self.kernels, self.waits, self.copies = Counter(), Counter(), 0

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Kernels, waits, and copies to the device."""
        return self.kernels.total(), self.waits.total(), self.copies


class _Elsewhere(Tensor):
    """A tensor that says it lives on the device; `inner` has its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "_Elsewhere":
        options = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        tensor = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=DEVICE, **options)
        tensor.inner = inner
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} on the pretend device, outside its context")

    def __repr__(self, **_: Any) -> str:
        return f"_Elsewhere({self.inner!r})"


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, _Elsewhere) else value


def _wrapped(value: Any) -> Any:
    return _Elsewhere(value) if isinstance(value, Tensor) and not isinstance(value, _Elsewhere) else value


class _Device(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        ours = any(isinstance(tensor, _Elsewhere) for tensor in tensors)
        if any(tensor.is_meta and not isinstance(tensor, _Elsewhere) for tensor in tensors):
            raise RuntimeError(f"{function} has a tensor without numbers, made outside the pretend device")
        target = kwargs.get("device")
        if function is _aten._to_copy.default and target is not None:
            return self._move(args[0], target, kwargs)
        if function is _aten.copy_.default and ours != all(isinstance(tensor, _Elsewhere) for tensor in tensors):
            return self._copy(*args)
        if not ours and (target is None or torch.device(target) != DEVICE):
            return function(*args, **kwargs)
        for tensor in tensors:
            if not isinstance(tensor, _Elsewhere) and tensor.ndim:
                raise MixedDevicesError(f"{function} has a tensor {tuple(tensor.shape)} on the CPU")
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        self._count(function, args)
        result = function(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if function._schema.name.endswith("_") or "out" in kwargs:  # in place
            return args[0] if "out" not in kwargs else kwargs["out"]
        return tree_map(_wrapped, result)

    def _count(self, function: Any, args: tuple[Any, ...]) -> None:
        packet, name = function.overloadpacket, function._schema.name.removeprefix("aten::")
        returns = function._schema.returns
        is_view = bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write
        has_mask = packet in _INDEXED and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if packet in _WAITS or has_mask:
            self.counts.waits[name] += 1
        if not is_view and packet not in _FREE:
            self.counts.kernels[name] += 1

    def _move(self, tensor: Tensor, target: Any, kwargs: dict[str, Any]) -> Tensor:
        to_device, on_device = torch.device(target) == DEVICE, isinstance(tensor, _Elsewhere)
        kwargs["device"] = torch.device("cpu")
        if on_device:
            if kwargs.get("dtype") not in (None, tensor.dtype):
                self.counts.kernels["_to_copy"] += 1
            if not to_device:
                self.counts.waits["cpu"] += 1
        elif to_device:
            self.counts.copies += 1
            if not kwargs.get("non_blocking"):
                self.counts.waits["blocking copy"] += 1
        result = _aten._to_copy.default(_inner(tensor), **kwargs)
        return _Elsewhere(result) if to_device else result

    def _copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if isinstance(target, _Elsewhere):
            self.counts.copies += source.ndim > 0
            if source.ndim and not non_blocking:
                self.counts.waits["blocking copy"] += 1
        else:
            self.counts.waits["copy_"] += 1
        _inner(target).copy_(_inner(source), non_blocking)
        return target


class _Attention(torch.autograd.Function):
    """Attention as one kernel, which is what a GPU has."""

    @staticmethod
    def forward(ctx: Any, counts: Counts, options: dict[str, Any], *inputs: Tensor) -> Tensor:
        counts.kernels["scaled_dot_product_attention"] += 1
        ctx.counts, ctx.inputs = counts, [tensor.inner.detach().requires_grad_() for tensor in inputs]
        with torch.enable_grad():
            ctx.output = torch.nn.functional.scaled_dot_product_attention(*ctx.inputs, **options)
        return _Elsewhere(ctx.output.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        ctx.counts.kernels["scaled_dot_product_attention_backward"] += 1
        gradients = torch.autograd.grad(ctx.output, ctx.inputs, gradient.inner)
        return None, None, *(_Elsewhere(tensor) for tensor in gradients)


class _Functions(TorchFunctionMode):
    """Stand in for functions that lose the numbers of a `meta` tensor or split what a GPU fuses."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.tensor and torch.device(kwargs.get("device") or "cpu") == DEVICE:
            return torch.tensor(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        if function is Tensor.tolist:
            return args[0].cpu().tolist()
        if function is Tensor.new_tensor and isinstance(args[0], _Elsewhere):
            return torch.tensor(args[1], dtype=args[0].dtype).to(DEVICE)
        if function is torch.nn.functional.scaled_dot_product_attention and isinstance(args[0], _Elsewhere):
            return _Attention.apply(self.counts, tree_map(_inner, kwargs), *args)
        return function(*args, **kwargs)


@contextmanager
def pretend_device() -> Iterator[Counts]:
    """Make `DEVICE` usable, and count what is done on it."""
    counts = Counts()
    real_autocast, is_enabled = torch.autocast, torch.is_autocast_enabled

    def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return real_autocast("cpu" if device_type == DEVICE.type else device_type, *args, **kwargs)

    def is_autocast_enabled(device_type: str = "cpu") -> bool:
        return is_enabled("cpu" if device_type == DEVICE.type else device_type)

    def enter(mode: Any) -> None:
        mode.stand_in = torch.no_grad()
        mode.stand_in.__enter__()

    def leave(mode: Any, *error: Any) -> None:
        mode.stand_in.__exit__(*error)

    with (
        patch.multiple(torch.inference_mode, __enter__=enter, __exit__=leave),
        patch.object(torch, "autocast", autocast),
        patch.object(torch, "is_autocast_enabled", is_autocast_enabled),
        _Functions(counts),
        _Device(counts),
    ):
        yield counts
