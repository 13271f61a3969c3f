"""What a blend costs at one masked position: by the paper's formulas, as counted while ours runs, and in time.

Knows the operators and a table, no predictions: the cost does not depend on what the candidates are.

Shapes: V vocabulary, D width, M masked positions, K candidates, N Karcher steps.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from arcmask.feedback import OPERATORS

_COUNTED = 8  # positions in a count: the difference between so many and twice as many leaves out what all share
_TIMED = 512
_REPEATS = 20

# What an operation costs for each element of its result, and which of them call a sine, a cosine or an inverse of one.
# Comparing, choosing and moving numbers is free.
_TRIGONOMETRIC = {"acos", "asin", "atan2", "cos", "sin", "sinc"}
_ARITHMETIC = {
    **dict.fromkeys(("add", "addcmul", "div", "mul", "neg", "reciprocal", "rsqrt", "rsub", "sqrt", "square", "sub"), 1),
    "lerp": 3,  # start + weight * (end - start)
    "pow": 1,
    "sinc": 2,  # beside the sine: the product with pi, and the quotient
}
_REDUCTIONS = {"sum": 1, "mean": 1, "linalg_vector_norm": 2}  # for each element that goes in
_FREE = frozenset(
    re.findall(
        "[a-z_]+",
        "_to_copy _unsafe_view abs alias amax argmin argmax bitwise_and bitwise_not bitwise_or cat clamp clamp_min "
        "clone copy detach diagonal empty empty_like eq expand fill full ge gt index le lift_fresh lt ones "
        "ones_like permute promote_types reshape scalar_tensor scatter select slice split squeeze stack t "
        "transpose unbind unsqueeze view where zero zeros zeros_like",
    )
)


@dataclass(frozen=True)
class BlendCost:
    """Per masked position; None where the paper gives no formula."""

    flops: float
    trigonometric: float
    microseconds: float
    paper_flops: int | None
    paper_trigonometric: int | None
    not_counted: list[str]  # operations that the count does not know


@dataclass(frozen=True)
class BlendCosts:
    """The operators at this model's sizes."""

    width: int
    candidates: int
    karcher_steps: int
    timed_positions: int
    threads: int
    operators: dict[str, BlendCost]

    @property
    def reading(self) -> str:
        linear, ours = self.operators["linear"], self.operators["spherical"]
        return (
            f"A masked position costs spherical feedback {ours.flops:,.0f} flops and {ours.trigonometric:.0f} "
            f"trigonometric calls as counted (by the paper {ours.paper_flops:,} and {ours.paper_trigonometric}; "
            f"linear: {linear.flops:,.0f} and {linear.trigonometric:.0f}), and took {ours.microseconds:.2f} "
            f"microseconds against {linear.microseconds:.2f} for linear."
        )


@torch.no_grad()
def blend_costs(
    table: Tensor, mask_id: int, *, top_k: int = 3, karcher_steps: int = 3, repeats: int = _REPEATS
) -> BlendCosts:
    """(V, D), id -> the costs of every operator, over candidates drawn from the table's rows."""
    names = [name for name in OPERATORS if name != "none"]
    seconds = _fastest({name: _work(name, table, mask_id, _TIMED, top_k, karcher_steps) for name in names}, repeats)
    paper = paper_costs(table.shape[1], top_k, karcher_steps)
    costs = {}
    for name in names:
        once, twice = (counted(_work(name, table, mask_id, m, top_k, karcher_steps)) for m in (_COUNTED, 2 * _COUNTED))
        flops, trigonometric = paper.get(name, (None, None))
        costs[name] = BlendCost(
            flops=(twice.flops - once.flops) / _COUNTED,
            trigonometric=(twice.trigonometric - once.trigonometric) / _COUNTED,
            microseconds=1e6 * seconds[name] / _TIMED,
            paper_flops=flops,
            paper_trigonometric=trigonometric,
            not_counted=sorted(twice.unknown),
        )
    return BlendCosts(
        width=table.shape[1],
        candidates=top_k,
        karcher_steps=karcher_steps,
        timed_positions=_TIMED,
        threads=torch.get_num_threads(),
        operators=costs,
    )


def paper_costs(width: int, k: int, steps: int) -> dict[str, tuple[int, int]]:
    """Flops and trigonometric calls by the paper's "Computational Overhead", in which spherical's omits O(D)."""
    return {"linear": ((2 * k + 1) * width, 0), "spherical": (6 * steps * k * width, steps * (2 * k + 2) + 4)}


def _work(name: str, table: Tensor, mask_id: int, m: int, k: int, steps: int) -> Callable[[], Tensor]:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, table.shape[0], (m, k), generator=draw).to(table.device)
    probs = torch.rand(m, k, generator=draw).softmax(-1).to(table.device)
    weight = torch.rand(m, generator=draw).to(table.device)
    mask, points = table[mask_id].float(), table[ids].float()
    return lambda: OPERATORS[name](mask, points, probs, weight, steps=steps)


def _fastest(works: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    """Seconds of the fastest repeat of each, taken in turns so that a slow moment hits all alike."""
    best = dict.fromkeys(works, float("inf"))
    for repeat in range(-2, repeats):
        for name, work in works.items():
            began = time.perf_counter()
            result = work()
            if result.device.type == "cuda":
                torch.cuda.synchronize(result.device)
            if repeat >= 0:  # the first two only warm up
                best[name] = min(best[name], time.perf_counter() - began)
    return best


class _Counter(TorchDispatchMode):
    """Adds up what every operation costs while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.trigonometric = 0
        self.unknown: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket.__name__).removesuffix("_")
        size = result.numel() if isinstance(result, Tensor) else 0
        if name in _TRIGONOMETRIC:
            self.trigonometric += size
        if name in ("mm", "bmm", "mv", "dot"):
            self.flops += 2 * size * args[0].shape[-1]
        elif name == "addmm":
            self.flops += size + 2 * size * args[1].shape[-1]
        elif name in _REDUCTIONS:
            self.flops += _REDUCTIONS[name] * prod(args[0].shape)
        elif name in _ARITHMETIC:
            self.flops += _ARITHMETIC[name] * size
        elif name not in _FREE | _TRIGONOMETRIC:
            self.unknown.add(name)
        return result


def counted(work: Callable[[], Tensor]) -> _Counter:
    """What a computation costs: `flops`, `trigonometric`, and the names of `unknown` operations."""
    with _Counter() as counter:
        work()
    return counter
