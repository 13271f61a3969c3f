"""The training objective: MDLM's loss with one pass or, with feedback, two; and the likelihood bound.

One module's forward does all of it, since that is what DDP hooks. The draft pass runs without gradient and is reduced
to candidates at once. Logits and loss exist for masked rows only, a chunk at a time: a chunk's gradients are taken as
soon as its loss is known, and its logits die with it. Whatever is worth logging comes back in a record.

Shapes: B sequences, L positions, V vocabulary, H hidden width, M masked positions, K candidates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from arcmask import schedule
from arcmask.candidates import Candidates, top_candidates
from arcmask.feedback import Feedback, Gate, SoftMask
from arcmask.model import Denoiser

# Logits that exist at a time.
CHUNK = 1 << 22
# With a plain linear head one copy of them is enough, and fewer products into the head's gradient are faster.
LINEAR_CHUNKS = 2
# Numbers that stay in the cache from one operation to the next.
BLOCK = 1 << 18


@dataclass(frozen=True)
class Objective:
    """What a batch gave."""

    loss: Tensor  # the sum over the batch of the weighted losses; divided by B * L it is the bound in nats a token
    per_sequence: Tensor  # (B,) the same, apart and without gradient
    masked: int  # M
    feedback: Feedback | None  # None if there was one pass


class TwoPass(nn.Module):
    """Rows of tokens and their noise -> the loss, with the denoiser's own prediction fed back if the step says so.

    Without feedback, or with the operator `none`, there is one pass. The confidence scalars then take part with a zero,
    so that every parameter has a gradient in every step and DDP need not search for those that have none.
    """

    def __init__(self, denoiser: Denoiser, feedback: SoftMask | None, chunk: int = CHUNK) -> None:
        super().__init__()
        self.denoiser = cast("nn.Module", denoiser)
        self.feedback = feedback
        self.chunk = chunk
        self._output_names: list[str] | None = None  # found in the first step

    def forward(self, rows: Tensor, time: Tensor, masked: Tensor, feedback: bool) -> Objective:
        """Clean rows (B, L), times (B,), where they are masked (B, L), and the gate's decision."""
        denoiser = cast("Denoiser", self.denoiser)
        tokens = rows.masked_fill(masked, denoiser.mask_id)
        given: Feedback | None = None
        if feedback and self.feedback is not None and self.feedback.operator != "none":
            candidates = self._draft(tokens, masked)
            given = self.feedback.blend(tokens, candidates, denoiser.table, denoiser.mask_id)
            embeddings = given.embeddings
        else:
            embeddings = functional.embedding(tokens, denoiser.table)
        hidden = denoiser.hidden(embeddings)
        alpha, slope = schedule.linear(time)
        weights = (-slope / (1 - alpha)).to(hidden.dtype).unsqueeze(1).expand_as(rows)[masked]
        losses = self._losses(hidden[masked], rows[masked], weights)
        if given is None and self.feedback is not None:
            losses = losses + 0.0 * sum(parameter.sum() for parameter in self.feedback.parameters())
        sequence = masked.nonzero()[:, 0]
        apart = losses.new_zeros(len(rows)).index_add_(0, sequence, losses.detach())
        return Objective(loss=losses.sum(), per_sequence=apart, masked=len(sequence), feedback=given)

    @torch.no_grad()
    def _draft(self, tokens: Tensor, masked: Tensor) -> Candidates:
        """The first pass, reduced to what is fed back."""
        denoiser, feedback = cast("Denoiser", self.denoiser), cast("SoftMask", self.feedback)
        hidden = denoiser.hidden(functional.embedding(tokens, denoiser.table))[masked]
        parts = [
            top_candidates(denoiser.logits(hidden[part]), feedback.top_k, exclude=denoiser.mask_id)
            for part in self._parts(len(hidden))
        ]
        if not parts:
            return top_candidates(denoiser.logits(hidden), feedback.top_k, exclude=denoiser.mask_id)
        return Candidates(
            ids=torch.cat([part.ids for part in parts]),
            probs=torch.cat([part.probs for part in parts]),
            entropy=torch.cat([part.entropy for part in parts]),
        )

    def _losses(self, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """(M, H), (M,), (M,) -> the weighted cross-entropies (M,)."""
        if torch.is_grad_enabled():
            if self._output_names is None:
                self._output_names = _output_names(cast("Denoiser", self.denoiser), rows[:1].detach())
            parameters = [self.denoiser.get_parameter(name) for name in self._output_names]
            if isinstance(getattr(self.denoiser, "linear_head", None), nn.Linear):
                return _LinearLoss.apply(self, rows, targets, weights, *parameters)  # type: ignore[no-untyped-call]
            return _ChunkedLoss.apply(self, rows, targets, weights, *parameters)  # type: ignore[no-untyped-call]
        parts = [self.part_losses(rows[part], targets[part], weights[part]) for part in self._parts(len(rows))]
        return torch.cat(parts) if parts else weights.new_zeros(0, dtype=torch.float32)

    def part_losses(self, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The same for one chunk, with gradient; SUBS: the mask is never predicted."""
        denoiser = cast("Denoiser", self.denoiser)
        logits = denoiser.logits(rows)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits[:, denoiser.mask_id] = -torch.inf
        return weights * functional.cross_entropy(logits, targets, reduction="none")

    def _parts(self, count: int, chunks: int = 1) -> Iterator[slice]:
        return _slices(count, chunks * self.chunk // cast("Denoiser", self.denoiser).table.shape[0])


def _slices(count: int, height: int) -> Iterator[slice]:
    height = max(1, height)
    return (slice(start, min(start + height, count)) for start in range(0, count, height))


class _ChunkedLoss(torch.autograd.Function):
    """Weighted cross-entropies whose gradients are taken chunk by chunk, in the forward pass.

    Only their sum can be differentiated: all of them must get the same gradient, as they do from a sum.
    """

    @staticmethod
    def forward(
        ctx: Any, objective: TwoPass, rows: Tensor, targets: Tensor, weights: Tensor, *parameters: Tensor
    ) -> Tensor:
        wanted = [parameter for parameter in parameters if parameter.requires_grad]
        row_gradients = torch.zeros_like(rows)
        gradients: list[Tensor] = []
        losses = []
        for part in objective._parts(len(rows)):
            with torch.enable_grad():
                chunk = rows[part].detach().requires_grad_()
                loss = objective.part_losses(chunk, targets[part], weights[part])
                first, *rest = torch.autograd.grad(loss.sum(), [chunk, *wanted])
            row_gradients[part] = first
            for gradient, more in zip(gradients, rest, strict=False):
                gradient += more
            gradients = gradients or list(rest)
            losses.append(loss.detach())
        gradients = gradients or [torch.zeros_like(parameter) for parameter in wanted]
        ctx.wanted = [parameter.requires_grad for parameter in parameters]
        ctx.save_for_backward(row_gradients, *gradients)
        return torch.cat(losses) if losses else rows.new_zeros(0, dtype=torch.promote_types(rows.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        row_gradients, *gradients = ctx.saved_tensors
        scale = gradient[0] if len(gradient) else gradient.new_zeros(())
        waiting = iter(gradients)
        # In place: these were made for this moment, and one of them is as large as the vocabulary.
        by_parameter = [next(waiting).mul_(scale) if wanted else None for wanted in ctx.wanted]
        return None, row_gradients.mul_(scale), None, None, *by_parameter


class _LinearLoss(_ChunkedLoss):
    """The same for logits that are one linear layer of the rows: they become their own gradient, in place."""

    @staticmethod
    def forward(
        ctx: Any, objective: TwoPass, rows: Tensor, targets: Tensor, weights: Tensor, *parameters: Tensor
    ) -> Tensor:
        denoiser = cast("Denoiser", objective.denoiser)
        head = cast("nn.Linear", objective.denoiser.linear_head)
        row_gradients = torch.empty_like(rows)
        gradients = [torch.zeros_like(parameter) if parameter.requires_grad else None for parameter in parameters]
        losses = []
        for part in objective._parts(len(rows), LINEAR_CHUNKS):
            logits = denoiser.logits(rows[part])
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits[:, denoiser.mask_id] = -torch.inf
            losses.append(weights[part] * _differentiate(logits, targets[part], weights[part]))
            row_gradients[part] = logits.to(rows.dtype) @ head.weight.to(rows.dtype)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None and parameter is head.bias:
                    gradient += logits.sum(0)
                elif gradient is not None:
                    _add_product(gradient, logits, rows[part])
            del logits  # before the next chunk's exist
        ctx.wanted = [parameter.requires_grad for parameter in parameters]
        ctx.save_for_backward(row_gradients, *(gradient for gradient in gradients if gradient is not None))
        return torch.cat(losses) if losses else rows.new_zeros(0, dtype=torch.promote_types(rows.dtype, torch.float32))


def _differentiate(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropies (M,); the logits (M, V) are replaced by the gradient of the weighted sum of them."""
    losses = []
    for block in _slices(len(logits), BLOCK // logits.shape[1]):
        rows, target, weight = logits[block], targets[block].unsqueeze(1), weights[block].unsqueeze(1).to(logits.dtype)
        rows -= rows.amax(1, keepdim=True)
        chosen = rows.gather(1, target)
        total = rows.exp_().sum(1, keepdim=True)
        losses.append((total.log() - chosen).squeeze(1))
        rows *= weight / total
        rows.scatter_add_(1, target, -weight)
    return torch.cat(losses)


def _add_product(gradient: Tensor, logits: Tensor, rows: Tensor) -> None:
    """gradient (V, H) += logits' rows; without a table of that size in between where the types allow it."""
    if gradient.dtype == logits.dtype == rows.dtype and not torch.is_autocast_enabled(rows.device.type):
        gradient.addmm_(logits.T, rows)
    else:
        gradient += logits.to(rows.dtype).T @ rows


def _output_names(denoiser: Denoiser, rows: Tensor) -> list[str]:
    """The parameters that the logits of rows depend on directly: those of the output layer."""
    names, parameters = zip(*cast("nn.Module", denoiser).named_parameters(), strict=True)
    was = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            found = torch.autograd.grad(denoiser.logits(rows).sum(), parameters, allow_unused=True)
    finally:
        for parameter, wanted in zip(parameters, was, strict=True):
            parameter.requires_grad_(wanted)
    return [name for name, gradient in zip(names, found, strict=True) if gradient is not None]


@dataclass(frozen=True)
class Bound:
    """The likelihood bound over a set of rows: nats a token, its standard error, and how it was found."""

    nats: float
    standard_error: float
    rows: int
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats a token)."""
        return float(torch.tensor(self.nats, dtype=torch.float64).exp())

    def bits_per_byte(self, text_bytes_per_token: float) -> float:
        """The same in bits for each byte of the text that the tokens stand for."""
        return self.nats / float(torch.log(torch.tensor(2.0, dtype=torch.float64))) / text_bytes_per_token


@torch.no_grad()
def likelihood_bound(
    objective: TwoPass,
    rows: Iterator[Tensor] | list[Tensor],
    *,
    feedback: bool,
    seed: int = 0,
    least_time: float = 1e-3,
) -> Bound:
    """The bound on batches of rows; times are antithetic within a batch and drawn from (seed, its number)."""
    gate = Gate(probability=0.0, least_time=least_time)
    device = cast("Denoiser", objective.denoiser).table.device
    was_training = objective.training
    objective.eval()
    sums = []
    length = 1
    try:
        for number, batch in enumerate(rows):
            draw = gate.draw(seed, number, *batch.shape)
            found = objective(
                batch.to(device), draw.time.to(device, torch.float32), draw.masked.to(device), feedback=feedback
            )
            sums.append(found.per_sequence.double().cpu())
            length = batch.shape[1]
    finally:
        objective.train(was_training)
    per_token = torch.cat(sums) / length
    error = float(per_token.std() / len(per_token) ** 0.5) if len(per_token) > 1 else float("nan")
    return Bound(
        nats=float(per_token.mean()), standard_error=error, rows=len(per_token), tokens=len(per_token) * length
    )
