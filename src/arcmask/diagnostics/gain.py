"""Measure what feedback would gain in a model as it is: the two-pass bound against the plain bound, without training.

Shapes: N rows, L positions, W weights, T intervals of time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arcmask import sphere
from arcmask.blocks import send
from arcmask.candidates import Candidates
from arcmask.errors import ArcmaskError
from arcmask.evaluation.statistics import summarize
from arcmask.feedback import OPERATORS, Confidence, Gate, Operator, SoftMask, find_operator
from arcmask.feedback.registry import Function
from arcmask.model import Denoiser
from arcmask.model.denoiser import maskable
from arcmask.objective import TwoPass
from arcmask.rows import Rows, counts_of, trimmed

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
TIME_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class GainCurve:
    """The two-pass bound minus the plain bound, in nats per token, for each operator and fixed weight.

    Values below 0 mean that feedback helps. ± is a 95 % confidence interval (Student's t over rows, paired).
    """

    rows: int
    plain: float  # the plain bound in nats per token
    weights: list[float]  # (W,)
    difference: dict[str, list[float]]  # by operator, (W,)
    half_width: dict[str, list[float]]  # by operator, (W,)
    time_edges: list[float]  # (T + 1,)
    difference_by_time: dict[str, list[list[float | None]]]  # by operator, (W, T); None where no row falls
    half_width_by_time: dict[str, list[list[float | None]]]
    angle: dict[str, list[float]]  # degrees by which the operator turns the mask, mean over positions, (W,)
    norm: dict[str, list[float]]  # norm of the blended embedding over the mask's, mean over positions, (W,)

    @property
    def best(self) -> dict[str, int]:
        """The index of each operator's best weight."""
        return {name: min(range(len(row)), key=row.__getitem__) for name, row in self.difference.items()}

    @property
    def reading(self) -> str:
        best = self.best
        name = min(best, key=lambda name: self.difference[name][best[name]])
        index = best[name]
        gain, half = -self.difference[name][index], self.half_width[name][index]
        if gain <= half:
            return (
                f"No operator lowers the bound of {self.plain:.4f} nats per token by more than its confidence "
                f"interval on {self.rows} rows: no gain from feedback without training is seen."
            )
        helping = [
            weight
            for weight, value, width in zip(self.weights, self.difference[name], self.half_width[name], strict=True)
            if -value > width
        ]
        others = [
            f"{find_operator(other).label} by {-self.difference[other][at]:.4f} ± {self.half_width[other][at]:.4f} at "
            f"{self.weights[at]:g}"
            for other, at in best.items()
            if other != name
        ]
        return (
            f"Feedback helps this model without any training. {find_operator(name).label} is best: at the weight "
            f"{self.weights[index]:g} it lowers the bound of {self.plain:.4f} nats per token by {gain:.4f} ± "
            f"{half:.4f} ({self.rows} rows), and it helps at weights from {min(helping):g} to {max(helping):g}."
            + (f" At their own best weights the others lower it less: {', '.join(others)}." if others else "")
        )


@dataclass(frozen=True)
class Draft:
    """A masked batch with the candidates of its draft pass, which all operators and weights share."""

    rows: Rows  # (B, L)
    time: Tensor  # (B,)
    masked: Tensor  # (B, L)
    candidates: Candidates
    plain: Tensor  # (B,) the plain bound of each row over the mean number of tokens in a row, float64


class Drafts:
    """Masked batches of rows (N, L), drafted once; the bound of any feedback then costs one pass.

    Rows, times and masks are those of `likelihood_bound` on the same batches with the same seed.
    """

    def __init__(self, denoiser: Denoiser, rows: Rows, *, top_k: int = 3, seed: int = 0, batch_size: int = 16) -> None:
        if rows.ndim != 2 or len(rows) < 2:
            raise ArcmaskError(
                f"rows must have the shape (N, L) with two rows or more, but they have {tuple(rows.shape)}"
            )
        if isinstance(denoiser, nn.Module):
            denoiser.eval()
        self.denoiser, self.length = denoiser, counts_of(rows).double().mean().cpu()
        objective, table, gate = TwoPass(denoiser, None), denoiser.table, Gate(probability=0.0)
        dtype = torch.promote_types(table.dtype, torch.float32)
        self.batches: list[Draft] = []
        for number, batch in enumerate(rows.split(batch_size)):
            draw = gate.draw(seed, number, *batch.shape)
            batch, masked = trimmed(batch, maskable(denoiser, batch, draw.masked))
            inputs = send(batch, table.device), send(draw.time, table.device, dtype), send(masked, table.device)
            candidates, plain = objective.draft(*inputs, top_k)
            self.batches.append(Draft(*inputs, candidates, plain.per_sequence.double().cpu() / self.length))

    @property
    def plain(self) -> Tensor:
        """(N,) the plain bound of each row in nats per token."""
        return torch.cat([draft.plain for draft in self.batches])

    @property
    def time(self) -> Tensor:
        """(N,) the time of each row."""
        return torch.cat([draft.time.double().cpu() for draft in self.batches])

    @property
    def entropy(self) -> Tensor:
        """(M,) the entropy of the draft at every masked position."""
        return torch.cat([draft.candidates.entropy.double().cpu() for draft in self.batches])

    @torch.no_grad()
    def two_pass(self, soft_mask: SoftMask) -> tuple[Tensor, float, float]:
        """Return the bound of each row with this feedback (N,), and the mean angle turned (radians) and norm."""
        objective = TwoPass(self.denoiser, soft_mask.to(self.denoiser.table.device)).eval()
        losses, angles, norms = [], [], []
        for draft in self.batches:
            result = objective(draft.rows, draft.time, draft.masked, feedback=True, candidates=draft.candidates)
            losses.append(result.per_sequence.double().cpu() / self.length)
            if result.feedback is not None and result.masked:
                mask = result.feedback.mask.double()
                blended = result.feedback.embeddings[draft.masked].double()
                angles.append(sphere.angle(mask, blended).cpu())
                norms.append((torch.linalg.vector_norm(blended, dim=-1) / torch.linalg.vector_norm(mask)).cpu())
        return torch.cat(losses), float(torch.cat(angles).mean()), float(torch.cat(norms).mean())


def gain_curve(
    denoiser: Denoiser,
    rows: Rows,
    operators: Sequence[str | Function | Operator] | None = None,
    weights: Sequence[float] = WEIGHTS,
    seed: int = 0,
    *,
    top_k: int = 3,
    karcher_steps: int = 3,
    batch_size: int = 16,
    advance: Callable[[int], object] = lambda _: None,
) -> GainCurve:
    """Return what feedback with each operator (by default all) and fixed weight gains on held-out rows (N, L).

    `operators` are names or functions. The draft pass is shared, so that 5 operators and 10 weights cost about 51
    passes. `advance` is called with 1 after each operator and weight.

    >>> import arcmask
    >>> import torch
    >>> rows = torch.randint(0, 27, (4, 32), generator=torch.Generator().manual_seed(0))
    >>> curve = arcmask.diagnostics.gain_curve(arcmask.load("sotu-tiny"), rows, ["linear"], [0.0, 0.3])
    >>> curve.weights, curve.difference["linear"][0]
    ([0.0, 0.3], 0.0)
    """
    names = feedback_operators(operators)
    drafts = Drafts(denoiser, rows, top_k=top_k, seed=seed, batch_size=batch_size)
    plain, edges = drafts.plain, torch.tensor(TIME_EDGES, dtype=torch.float64)
    interval = torch.bucketize(drafts.time, edges[1:-1])
    columns: dict[str, dict[str, list]] = {  # type: ignore[type-arg]
        name: {key: [] for key in ("difference", "half_width", "by_time", "half_by_time", "angle", "norm")}
        for name in names
    }
    for name in names:
        for weight in weights:
            soft_mask = SoftMask(name, top_k, karcher_steps, Confidence(fixed=weight))
            bound, angle, norm = drafts.two_pass(soft_mask) if weight > 0 else (plain, 0.0, 1.0)
            change = bound - plain
            by_time = [_mean_and_half(change[interval == part]) for part in range(len(TIME_EDGES) - 1)]
            mean, half = _mean_and_half(change)
            entries = (
                mean,
                half,
                [m for m, _ in by_time],
                [h for _, h in by_time],
                torch.tensor(angle).rad2deg().item(),
                norm,
            )
            for column, entry in zip(columns[name].values(), entries, strict=True):
                column.append(entry)
            advance(1)
    return GainCurve(
        rows=len(rows),
        plain=float(plain.mean()),
        weights=list(weights),
        difference={name: columns[name]["difference"] for name in names},
        half_width={name: columns[name]["half_width"] for name in names},
        time_edges=list(TIME_EDGES),
        difference_by_time={name: columns[name]["by_time"] for name in names},
        half_width_by_time={name: columns[name]["half_by_time"] for name in names},
        angle={name: columns[name]["angle"] for name in names},
        norm={name: columns[name]["norm"] for name in names},
    )


def feedback_operators(operators: Sequence[str | Function | Operator] | None) -> list[str]:
    """Return the names of those operators that feed something back; None stands for all that are registered."""
    names = OPERATORS if operators is None else [find_operator(name).name for name in operators]
    chosen = [name for name in dict.fromkeys(names) if name != "none"]
    if not chosen:
        raise ArcmaskError("the operator none feeds nothing back; give another one")
    return chosen


def _mean_and_half(values: Tensor) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return (float(values.mean()) if len(values) else None), None
    summary = summarize(values.tolist())
    return summary.mean, summary.half_width
