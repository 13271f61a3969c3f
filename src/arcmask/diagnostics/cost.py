"""Measure what an operator costs per masked position: by the paper's formulas, counted while it runs, and in time.

The cost does not depend on the candidates, so no predictions are needed.

Shapes: V vocabulary, D width, M masked positions, K candidates.
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

from arcmask.feedback import OPERATORS, Operator

_COUNTED = 8  # positions in a count; the difference between 8 and 16 leaves out what all positions share
_TIMED = 512
_REPEATS = 20

_TRIGONOMETRIC = {"acos", "asin", "atan2", "cos", "sin", "sinc"}
_ARITHMETIC = {  # flops per element of the result
    **dict.fromkeys(("add", "addcmul", "div", "mul", "neg", "pow", "reciprocal", "rsqrt", "rsub", "sqrt"), 1),
    **dict.fromkeys(("square", "sub"), 1),
    "lerp": 3,  # start + weight * (end - start)
    "sinc": 2,  # beside the sine: the product with pi, and the quotient
}
_REDUCTIONS = {"sum": 1, "mean": 1, "linalg_vector_norm": 2}  # flops per element of the input
# Comparing, choosing and moving numbers costs nothing.
_FREE = re.findall(
    r"\w+",
    "_to_copy _unsafe_view abs alias amax amin argmin argmax bitwise_and bitwise_not bitwise_or cat clamp "
    "clamp_min clone copy detach diagonal empty empty_like eq expand fill frexp full ge gt index le lift_fresh "
    "lt maximum ones ones_like permute promote_types reshape scalar_tensor scatter select slice split squeeze "
    "stack t transpose unbind unsqueeze view where zero zeros zeros_like ",
)


@dataclass(frozen=True)
class BlendCost:
    """The cost of one operator per masked position; None where the paper gives no formula."""

    flops: float
    trigonometric: float
    microseconds: float
    paper_flops: int | None
    paper_trigonometric: int | None
    not_counted: list[str]  # operations that the counter does not know

    @property
    def text(self) -> str:
        """The counts in one phrase."""
        paper = "" if self.paper_flops is None else f" (paper: {self.paper_flops:,} and {self.paper_trigonometric})"
        counts = f"{self.flops:,.0f} flops and {self.trigonometric:.0f} trigonometric calls{paper}"
        return f"{counts}, {self.microseconds:.2f} \u00b5s"


@dataclass(frozen=True)
class BlendCosts:
    """The cost of every operator at this model's sizes."""

    width: int
    candidates: int
    karcher_steps: int
    timed_positions: int
    threads: int
    operators: dict[str, BlendCost]

    @property
    def reading(self) -> str:
        costs = "; ".join(f"{OPERATORS[name].label}: {cost.text}" for name, cost in self.operators.items())
        return f"Cost per masked position. {costs}."


@torch.no_grad()
def blend_costs(
    table: Tensor, mask_id: int, *, top_k: int = 3, karcher_steps: int = 3, repeats: int = _REPEATS
) -> BlendCosts:
    """Return the cost of every registered operator, for candidates drawn from the rows of a table (V, D)."""

    names = [name for name in OPERATORS if name != "none"]
    works = {name: _work(OPERATORS[name], table, mask_id, _TIMED, top_k, karcher_steps) for name in names}
    seconds = _fastest(works, repeats)
    paper = paper_costs(table.shape[1], top_k, karcher_steps)
    costs = {}
    for name in names:
        flops, trigonometric, unknown = blend_counts(OPERATORS[name], table.shape[1], top_k, karcher_steps)
        paper_flops, paper_trigonometric = paper.get(name, (None, None))
        costs[name] = BlendCost(
            flops=flops,
            trigonometric=trigonometric,
            microseconds=1e6 * seconds[name] / _TIMED,
            paper_flops=paper_flops,
            paper_trigonometric=paper_trigonometric,
            not_counted=unknown,
        )
    return BlendCosts(table.shape[1], top_k, karcher_steps, _TIMED, torch.get_num_threads(), costs)


def _work(
    operator: Operator, table: Tensor, mask_id: int, positions: int, top_k: int, karcher_steps: int
) -> Callable[[], Tensor]:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, table.shape[0], (positions, top_k), generator=draw).to(table.device)
    probs = torch.rand(positions, top_k, generator=draw).softmax(-1).to(table.device)
    weight = torch.rand(positions, generator=draw).to(table.device)
    mask, points = table[mask_id].float(), table[ids].float()
    return lambda: operator(mask, points, probs, weight, steps=karcher_steps)


@torch.no_grad()
def blend_counts(operator: Operator, width: int, top_k: int, karcher_steps: int) -> tuple[float, float, list[str]]:
    """Return flops and trigonometric calls per masked position, and the operations that the counter does not know."""
    table = torch.randn(2 * _COUNTED, width, generator=torch.Generator().manual_seed(0))
    works = [_work(operator, table, 0, n, top_k, karcher_steps) for n in (_COUNTED, 2 * _COUNTED)]
    once, twice = map(counted, works)
    flops, trigonometric = twice.flops - once.flops, twice.trigonometric - once.trigonometric
    return flops / _COUNTED, trigonometric / _COUNTED, sorted(twice.unknown)


def paper_costs(width: int, k: int, steps: int) -> dict[str, tuple[int, int]]:
    """Return flops and trigonometric calls by the paper's "Computational Overhead"; spherical's leave out O(D)."""
    return {"linear": ((2 * k + 1) * width, 0), "spherical": (6 * steps * k * width, steps * (2 * k + 2) + 4)}


def _fastest(works: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    """Return the seconds of each function's fastest repeat. They take turns, so that a slow moment affects all."""
    best = dict.fromkeys(works, float("inf"))
    for repeat in range(-2, repeats):  # the first two warm up
        for name, work in works.items():
            start = time.perf_counter()
            result = work()
            if result.device.type == "cuda":
                torch.cuda.synchronize(result.device)
            if repeat >= 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


class _Counter(TorchDispatchMode):
    """Add up the cost of every tensor operation while it is entered."""

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
        elif name not in _TRIGONOMETRIC and name not in _FREE:
            self.unknown.add(name)
        return result


def counted(work: Callable[[], Tensor]) -> _Counter:
    """Run a function and return its `flops`, `trigonometric` calls, and the names of `unknown` operations."""
    with _Counter() as counter:
        work()
    return counter
