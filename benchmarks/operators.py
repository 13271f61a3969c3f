"""Time the operators and the candidate extraction at the released model's sizes, against plain implementations."""

from collections.abc import Callable

import torch
from torch import Tensor

from arcmask.candidates import top_candidates
from arcmask.feedback import OPERATORS
from arcmask.feedback.registry import Function
from benchmarks.measure import Work, fastest, peak_extra_bytes, table, use_threads
from benchmarks.plain import literal_spherical, plain_candidates

M, V, D, K = 512, 50258, 768, 3
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(m: int) -> Inputs:
    """Return mask, candidates, probabilities and weight, all with gradients."""
    draw = torch.Generator().manual_seed(0)
    probs = (2 * torch.randn(m, K, generator=draw)).softmax(-1).sort(descending=True).values
    mask, candidates = torch.randn(D, generator=draw), torch.randn(m, K, D, generator=draw)
    weight = torch.rand(m, generator=draw)
    return mask.requires_grad_(), candidates.requires_grad_(), probs.requires_grad_(), weight.requires_grad_()


def forward(operator: Function, tensors: Inputs) -> Work:
    """Return a call of the operator alone."""

    def work() -> Tensor:
        with torch.no_grad():
            return operator(*tensors)

    return work


def forward_backward(operator: Function, tensors: Inputs) -> Work:
    """Return a call of the operator and of the gradients of all its inputs."""
    gradient = torch.ones(tensors[1].shape[0], D)

    def work() -> object:
        return torch.autograd.grad(operator(*tensors), tensors, gradient, allow_unused=True)

    return work


def run(repeats: int = 100) -> None:
    """Print both tables."""
    print(f"operators: K = {K}, D = {D}, 3 Karcher steps, float32; {use_threads(2)}")
    logits = 3 * torch.randn(M, V, generator=torch.Generator().manual_seed(0))
    extraction: dict[str, Work] = {
        "candidates": lambda: top_candidates(logits, K),
        "plain softmax, log, sum, top-k": lambda: plain_candidates(logits, K),
    }
    best = fastest(extraction, max(10, repeats // 10))
    memory = {name: peak_extra_bytes(work) for name, work in extraction.items()}
    plain = "plain softmax, log, sum, top-k"
    rows: list[tuple[str, ...]] = [
        (name, f"{1e3 * best[name]:.1f}", f"{best[plain] / best[name]:.1f}", f"{memory[name] / 1e6:.1f}")
        for name in extraction
    ]
    print(f"\n{table(rows, (f'(M, V) = ({M}, {V})', 'ms', 'plain / it', 'peak extra MB'))}")

    operators: dict[str, Callable[..., Tensor]] = {
        name: OPERATORS[name] for name in sorted(OPERATORS) if name != "none"
    }
    operators |= {
        "spherical, torch.compile": torch.compile(OPERATORS["spherical"]),
        "literal Algorithm 2": literal_spherical,
    }
    for m in (M, 16 * M):
        tensors = inputs(m)
        times = {
            kind.__name__: fastest({n: kind(op, tensors) for n, op in operators.items()}, max(10, repeats * M // m))
            for kind in (forward, forward_backward)
        }
        rows = []
        for name, operator in operators.items():
            cells = [name]
            for best in times.values():
                cells += [f"{1e3 * best[name]:.2f}", f"{best[name] / best['linear']:.1f}"]
            cells.append(f"{times['forward']['literal Algorithm 2'] / times['forward'][name]:.1f}")
            rows.append((*cells, f"{peak_extra_bytes(forward_backward(operator, tensors)) / 1e6:.1f}"))
        header = (f"M = {m}", "forward ms", "/ linear", "+ backward ms", "/ linear", "literal / it", "peak extra MB")
        print("\n" + table(rows, header))
