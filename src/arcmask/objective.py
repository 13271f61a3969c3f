"""The training objective: MDLM's loss with one pass or, with feedback, two; and the likelihood bound.

One module's forward does all of it, since that is what DDP hooks. The draft pass runs without gradient and is reduced
to candidates at once. Logits and losses are computed for masked rows only, one chunk at a time, and the logits of a
chunk are freed before the next chunk. What is worth logging is in the record that is returned.

Shapes: B sequences, L positions, V vocabulary, H hidden width, M masked positions, K candidates.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from arcmask import schedule
from arcmask.blocks import block_rows, send
from arcmask.candidates import Candidates, top_candidates
from arcmask.feedback import Feedback, Gate, SoftMask
from arcmask.model import Denoiser
from arcmask.model.denoiser import maskable
from arcmask.rows import Rows, attention_mask_of, counts_of, hidden_of, tokens_of, trimmed

CHUNK = {"cpu": 1 << 22, "gpu": 1 << 26}  # logits per chunk
LINEAR_CHUNKS = 2  # with a linear head one copy of the logits is enough, and larger products are faster
Way = Literal["plain", "two_pass"]  # of computing a bound: without feedback, or with it
BLOCK = {"cpu": 1 << 18, "gpu": 1 << 27}  # logits per block of a chunk; on a GPU, the whole chunk


@dataclass(frozen=True)
class Objective:
    """The loss of a batch, and what led to it."""

    loss: Tensor  # the weighted losses, summed over the batch; divided by B * L it is the bound in nats per token
    per_sequence: Tensor  # (B,) the same for each sequence, without gradient
    masked: int  # M
    feedback: Feedback | None  # None if there was one pass


class TwoPass(nn.Module):
    """The loss of a batch, with the denoiser's own prediction fed back if the step uses feedback.

    Without feedback, or with the operator `none`, there is one pass. The confidence scalars then enter with a factor of
    zero, so that every parameter has a gradient in every step and DDP need not search for unused ones.

    `forward` takes clean rows (B, L), times (B,), the masked positions (B, L) and whether to use feedback.

    >>> import torch
    >>> import arcmask
    >>> from arcmask.feedback import SoftMask
    >>> objective = arcmask.objective.TwoPass(arcmask.load("sotu-tiny"), SoftMask("spherical"))
    >>> rows = torch.zeros(1, 8, dtype=torch.long)
    >>> result = objective(rows, torch.tensor([0.5]), torch.arange(8).reshape(1, 8) < 4, feedback=True)
    >>> result.masked, result.loss.shape
    (4, torch.Size([]))
    """

    def __init__(self, denoiser: Denoiser, feedback: SoftMask | None, chunk: int | None = None) -> None:
        super().__init__()
        self.denoiser: Denoiser = denoiser
        self.feedback = feedback
        self.chunk = chunk

    def forward(
        self, rows: Rows, time: Tensor, masked: Tensor, feedback: bool, candidates: Candidates | None = None
    ) -> Objective:
        """Return the loss of clean rows (B, L) at times (B,), masked where `masked` (B, L) says.

        Padding, prompts, and [CLS] and [SEP] of a denoiser that has them are never masked.
        With `candidates`, those of an earlier `draft` of the same batch, the draft pass is left out.
        """
        denoiser = self.denoiser
        masked, seen = maskable(denoiser, rows, masked), attention_mask_of(rows)
        tokens = tokens_of(rows).masked_fill(masked, denoiser.mask_id)
        index = _positions(masked)
        record: Feedback | None = None
        if feedback and self.feedback is not None and self.feedback.operator != "none":
            if candidates is None:
                candidates = self._candidates(self._draft_hidden(tokens, seen, index), self.feedback.top_k)
            record = self.feedback.blend(tokens, candidates, denoiser.table, denoiser.mask_id)
            embeddings = record.embeddings
        else:
            embeddings = functional.embedding(tokens, denoiser.table)
        if torch.is_grad_enabled():
            # Before torch 2.10, autocast reused weights that had been cast without a graph, as in the draft pass, and
            # their gradients were lost (pytorch/pytorch#112583).
            torch.clear_autocast_cache()
        hidden = hidden_of(denoiser, embeddings, seen).flatten(0, 1)[index]
        return self._objective(hidden, tokens_of(rows), time, index, record)

    @torch.no_grad()
    def draft(self, rows: Rows, time: Tensor, masked: Tensor, top_k: int) -> tuple[Candidates, Objective]:
        """Return the candidates of the draft pass and the plain loss of the same batch, from one pass."""
        masked = maskable(self.denoiser, rows, masked)
        index = _positions(masked)
        tokens = tokens_of(rows)
        hidden = self._draft_hidden(tokens.masked_fill(masked, self.denoiser.mask_id), attention_mask_of(rows), index)
        return self._candidates(hidden, top_k), self._objective(hidden, tokens, time, index, None)

    def _objective(
        self, hidden: Tensor, rows: Tensor, time: Tensor, index: Tensor, record: Feedback | None
    ) -> Objective:
        """Return the loss of hidden states (M, H), those at the masked positions `index` (M,)."""
        alpha, slope = schedule.linear(time)
        sequence = index // rows.shape[1]
        weights = (-slope / (1 - alpha)).to(hidden.dtype)[sequence]
        losses = self._losses(hidden, rows.flatten()[index], weights)
        if record is None and self.feedback is not None:
            losses = losses + 0.0 * sum(parameter.sum() for parameter in self.feedback.parameters())
        per_sequence = losses.new_zeros(len(rows)).index_add_(0, sequence, losses.detach())
        return Objective(loss=losses.sum(), per_sequence=per_sequence, masked=len(index), feedback=record)

    @torch.no_grad()
    def _draft_hidden(self, tokens: Tensor, seen: Tensor | None, index: Tensor) -> Tensor:
        """Return the hidden states (M, H) of the draft pass at the masked positions `index` (M,)."""
        embeddings = functional.embedding(tokens, self.denoiser.table)
        return hidden_of(self.denoiser, embeddings, seen).flatten(0, 1)[index]

    @torch.no_grad()
    def _candidates(self, hidden: Tensor, top_k: int) -> Candidates:
        parts = [
            top_candidates(self.denoiser.logits(hidden[part]), top_k, exclude=self.denoiser.mask_id)
            for part in self._parts(len(hidden)) or [slice(0)]
        ]
        return Candidates.join(parts)

    def _losses(self, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted cross-entropies (M,) of rows (M, H).

        A head that is one linear layer has a path of its own; for any other, the logits of a chunk are computed again
        in the backward pass.
        """
        head = getattr(self.denoiser, "linear_head", None)
        if isinstance(head, nn.Linear) and torch.is_grad_enabled():
            return _LinearLoss.apply(self, rows, targets, weights, head.weight, head.bias)  # type: ignore[no-untyped-call]
        parts = [
            checkpoint(
                self._part_losses,
                rows[part],
                targets[part],
                weights[part],
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for part in self._parts(len(rows))
        ]
        return torch.cat(parts) if parts else 0.0 * rows.sum(-1)

    def _part_losses(self, rows: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return weights * functional.cross_entropy(self.masked_logits(rows), targets, reduction="none")

    def masked_logits(self, rows: Tensor) -> Tensor:
        """Return logits (M, V) in float32 or better. By SUBS the mask is never predicted."""
        logits = self.denoiser.logits(rows)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits[:, self.denoiser.mask_id] = -torch.inf
        return logits

    def _parts(self, count: int, chunks: int = 1) -> list[slice]:
        table = self.denoiser.table
        sizes = {device: chunks * (self.chunk or size) for device, size in CHUNK.items()}
        return _slices(count, block_rows(table.device, table.shape[0], **sizes))


def _positions(masked: Tensor) -> Tensor:
    """Return the masked positions (B, L) as indices (M,) of the flattened batch. A GPU waits here, once per step."""
    return masked.flatten().nonzero().squeeze(1)


def _slices(count: int, height: int) -> list[slice]:
    return [slice(start, min(start + height, count)) for start in range(0, count, height)]


class _LinearLoss(torch.autograd.Function):
    """Weighted cross-entropies of logits that are one linear layer of the rows.

    The gradients are taken chunk by chunk in the forward pass, where the logits become their own gradient in place.
    Only the sum of the losses can be differentiated: all of them must receive the same gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        objective: TwoPass,
        rows: Tensor,
        targets: Tensor,
        weights: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        row_gradients = torch.empty_like(rows)
        gradients = [
            torch.zeros_like(parameter) if parameter is not None and parameter.requires_grad else None
            for parameter in (weight, bias)
        ]
        losses = []
        for part in objective._parts(len(rows), LINEAR_CHUNKS):
            logits = objective.masked_logits(rows[part])
            losses.append(weights[part] * _differentiate(logits, targets[part], weights[part]))
            row_gradients[part] = logits.to(rows.dtype) @ weight.to(rows.dtype)
            if gradients[0] is not None:
                _add_product(gradients[0], logits, rows[part])
            if gradients[1] is not None:
                gradients[1] += logits.sum(0)
            del logits  # before the next chunk's exist
        ctx.save_for_backward(row_gradients, *gradients)
        return torch.cat(losses) if losses else rows.new_zeros(0, dtype=torch.promote_types(rows.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradient[0] if len(gradient) else gradient.new_zeros(())
        # In place: these tensors were made for this moment, and one of them is as large as the vocabulary.
        rows, weight, bias = (None if saved is None else saved.mul_(scale) for saved in ctx.saved_tensors)
        return None, rows, None, None, weight, bias


def _differentiate(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the cross-entropies (M,), and replace the logits (M, V) by the gradient of their weighted sum."""
    losses = []
    for block in _slices(len(logits), block_rows(logits.device, logits.shape[1], **BLOCK)):
        rows, target, weight = logits[block], targets[block].unsqueeze(1), weights[block].unsqueeze(1).to(logits.dtype)
        rows -= rows.amax(1, keepdim=True)
        chosen = rows.gather(1, target)
        total = rows.exp_().sum(1, keepdim=True)
        losses.append((total.log() - chosen).squeeze(1))
        rows *= weight / total
        rows.scatter_add_(1, target, -weight)
    return torch.cat(losses)


def _add_product(gradient: Tensor, logits: Tensor, rows: Tensor) -> None:
    """Add logits^T rows to gradient (V, H), without a temporary table of that size where the dtypes allow it."""
    if gradient.dtype == logits.dtype == rows.dtype and not torch.is_autocast_enabled(rows.device.type):
        gradient.addmm_(logits.T, rows)
    else:
        gradient += logits.to(rows.dtype).T @ rows


@dataclass(frozen=True)
class Bound:
    """The likelihood bound over a set of rows, in nats per token, with its standard error."""

    nats: float
    standard_error: float
    rows: int
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nats per token)."""
        return math.exp(min(self.nats, 700.0))

    def bits_per_byte(self, text_bytes_per_token: float) -> float:
        """Return the bound in bits per byte of the text that the tokens stand for."""
        return self.nats / math.log(2) / text_bytes_per_token


@torch.no_grad()
def sequence_losses(
    objective: TwoPass,
    batches: Iterable[Rows],
    ways: Sequence[Way],
    *,
    seed: int = 0,
    least_time: float = 1e-3,
    rank: int = 0,
    world: int = 1,
) -> tuple[dict[Way, Tensor], Tensor]:
    """Return the bound of each sequence (N,) in nats, in each way, and its number of counted tokens (N,).

    The model is in evaluation mode. Both ways together cost two passes, since the draft pass is the plain one.

    Each of `world` ranks takes its share of the batches. Times are antithetic within a batch. They are drawn from the
    seed and the batch's number.
    """
    gate, table = Gate(probability=0.0, least_time=least_time), objective.denoiser.table
    dtype, was_training, feedback = (
        torch.promote_types(table.dtype, torch.float32),
        objective.training,
        objective.feedback,
    )
    shares_draft = len(ways) == 2 and feedback is not None and feedback.operator != "none"
    empty = torch.zeros(0, dtype=torch.float64, device=table.device)
    losses: dict[Way, list[Tensor]] = {way: [empty] for way in ways}
    tokens = [torch.zeros(0, dtype=torch.long)]
    objective.eval()
    try:
        for number, batch in enumerate(batches):
            if number % world == rank:
                draw, candidates = gate.draw(seed, number, *batch.shape), None
                rows, masked = trimmed(batch, draw.masked)
                inputs = send(rows, table.device), send(draw.time, table.device, dtype), send(masked, table.device)
                for way in sorted(ways):  # plain first
                    if way == "plain" and shares_draft and feedback is not None:
                        candidates, result = objective.draft(*inputs, feedback.top_k)
                    else:
                        result = objective(*inputs, feedback=way == "two_pass", candidates=candidates)
                    losses[way].append(result.per_sequence.double())
                tokens.append(counts_of(batch).cpu())
    finally:
        objective.train(was_training)
    return {way: torch.cat(parts).cpu() for way, parts in losses.items()}, torch.cat(tokens)


def per_token(nats: Tensor, tokens: Tensor) -> Tensor:
    """Return the bounds of rows (N,) divided by their mean number of tokens: their mean is in nats per token."""
    return nats / tokens.double().mean()


def likelihood_bounds(
    objective: TwoPass, rows: Iterable[Rows], ways: Sequence[Way], *, seed: int = 0, least_time: float = 1e-3
) -> dict[Way, Bound]:
    """Return the likelihood bound on batches of rows (B, L), plain or with feedback ("two_pass") or both."""
    nats, tokens = sequence_losses(objective, rows, ways, seed=seed, least_time=least_time)
    return {way: _bound(per_token(losses, tokens), tokens) for way, losses in nats.items()}


def _bound(losses: Tensor, tokens: Tensor) -> Bound:
    bound = float(losses.mean())
    residuals = losses if len(tokens.unique()) < 2 else losses - bound * per_token(tokens.double(), tokens)
    error = float(residuals.std() / len(losses) ** 0.5) if len(losses) > 1 else float("nan")
    return Bound(nats=bound, standard_error=error, rows=len(losses), tokens=int(tokens.sum()))


def likelihood_bound(
    objective: TwoPass, rows: Iterable[Rows], *, feedback: bool, seed: int = 0, least_time: float = 1e-3
) -> Bound:
    """Return the likelihood bound on batches of rows (B, L), with or without feedback.

    Of rows of different lengths it is the sum of nats over the sum of tokens, with the standard error of that ratio.

    >>> import torch
    >>> import arcmask
    >>> from arcmask.feedback import SoftMask
    >>> objective = arcmask.objective.TwoPass(arcmask.load("sotu-tiny"), SoftMask())
    >>> rows = torch.zeros(2, 16, dtype=torch.long)
    >>> arcmask.objective.likelihood_bound(objective, [rows], feedback=False).tokens
    32
    """
    way: Way = "two_pass" if feedback else "plain"
    return likelihood_bounds(objective, rows, [way], seed=seed, least_time=least_time)[way]
