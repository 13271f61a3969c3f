"""The sampling loop: run the denoiser, reveal positions, feed predictions back, until nothing is masked.

The loop computes only what a step needs. It draws the positions to reveal first, so only their rows need logits, unless
the next step uses feedback. It skips a sequence that needs no logits. It reuses the hidden states of a sequence whose
tokens have not changed since a pass without feedback. None of this changes the samples. No (B, L, V) tensor is built,
and K candidates per position are kept between steps.

Tokens, masks and everything that a rule decides by are on the CPU. Hidden states and candidates stay on the denoiser's
device. A step sends it indices, and waits for it once: for the drawn tokens.

Shapes: B sequences, L positions, V vocabulary, H hidden width, M rows, K candidates.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from arcmask.blocks import block_rows, send
from arcmask.candidates import Candidates, top_candidates
from arcmask.feedback import SoftMask
from arcmask.model import Denoiser
from arcmask.rows import Rows, attention_mask_of, hidden_of, tokens_of
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.rules import Rule, StepState, Timetable
from arcmask.sampling.trace import Trace, TraceStep, empty_measures, measure, probability_of

CHUNK = {"cpu": 1 << 24, "gpu": 1 << 27}  # number of logits that exist at a time
_SHOWN = 3  # candidates in a trace without feedback


class _Batch:
    """The state of a batch between steps."""

    def __init__(self, rows: Rows, mask_id: int, k: int, device: torch.device) -> None:
        tokens = tokens_of(rows)
        self.tokens = tokens.cpu().clone()  # (B, L)
        self.seen = attention_mask_of(rows.to("cpu"))  # (B, L), False for padding; None without any
        self.free = self.tokens == mask_id  # (B, L)
        self.calls = torch.zeros(len(tokens), dtype=torch.long)
        self.hidden: Tensor | None = None  # (B, L, H), of the last pass of each sequence
        # (B,), whether that pass had the present tokens, and whether it had feedback
        self.is_current = torch.zeros(len(tokens), dtype=torch.bool)
        self.had_feedback = torch.zeros(len(tokens), dtype=torch.bool)
        # Candidates of the step before, at the positions that `has_candidates` marks.
        self.has_candidates = torch.zeros_like(self.free)
        self.ids = torch.zeros(*tokens.shape, k, dtype=torch.long, device=device)
        self.probs = torch.zeros(*tokens.shape, k, dtype=torch.float64, device=device)
        self.entropy = torch.zeros(tokens.shape, dtype=torch.float64, device=device)
        # Only for a trace: the total probability of the candidates, and measures of the feedback in the last pass.
        self.share = torch.zeros(tokens.shape, dtype=torch.float64)
        self.measures = empty_measures(*tokens.shape)

    def candidates(self, positions: Tensor) -> Candidates:
        """Return the stored candidates at marked positions (B, L)."""
        at = send(_indices(positions), self.ids.device)
        return Candidates(self.ids.flatten(0, 1)[at], self.probs.flatten(0, 1)[at], self.entropy.flatten()[at])

    def store(self, at: Tensor, candidates: Candidates) -> None:
        """Store the candidates of flat positions (M,)."""
        at = send(at, self.ids.device)
        self.ids.flatten(0, 1)[at] = candidates.ids
        self.probs.flatten(0, 1)[at] = candidates.probs.double()
        self.entropy.flatten()[at] = candidates.entropy.double()

    def trace_step(self, time: Tensor, called: Tensor) -> TraceStep:
        """Return a copy of the state for a trace."""
        names = ("tokens", "measures", "ids", "probs", "share", "entropy")
        return TraceStep(
            time=time.clone(), called=called, **{name: getattr(self, name).clone().cpu() for name in names}
        )


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A denoiser, a step rule, feedback and a filter. `band` is the closed interval of times that use feedback.

    With `reuse`, a step after one that changed no token of a sequence takes the same prediction again, without a pass
    and without feedback.

    `arcmask.sample` builds one. Use it directly to choose the band or to supply the draws.

    >>> import torch
    >>> import arcmask
    >>> from arcmask.sampling import RULES, Filter, Sampler
    >>> from arcmask.sampling.draws import Draws
    >>> model = arcmask.load("sotu-tiny")
    >>> sampler = Sampler(denoiser=model, rule=RULES["ancestral"](), steps=4, feedback=None, filter=Filter())
    >>> tokens, calls = sampler.run(torch.full((2, 16), model.mask_id), Draws(seed=0, indices=[0, 1]))
    >>> tokens.shape, calls.shape
    (torch.Size([2, 16]), torch.Size([2]))
    """

    denoiser: Denoiser
    rule: Rule
    steps: int
    feedback: SoftMask | None
    filter: Filter
    band: tuple[float, float] = (0.2, 0.8)
    reuse: bool = False

    @torch.no_grad()
    def run(self, rows: Rows, draws: Draws, trace: Trace | None = None) -> tuple[Tensor, Tensor]:
        """Fill the masks in rows (B, L). Return the tokens (B, L) and the denoiser calls of each sequence (B,).

        For padded rows, the draws need their lengths.
        """
        k = _SHOWN if self.feedback is None else self.feedback.top_k
        table = self.denoiser.table
        batch = _Batch(rows, self.denoiser.mask_id, min(k, table.shape[0]), table.device)
        timetable = self.rule.timetable(self.steps, batch.free, draws)
        with _evaluation_mode(self.denoiser):  # with dropout a sample would not depend on its seed alone
            for step in range(self.steps):
                self._step(batch, step, timetable, draws.uniform(3, rows.shape[1]), trace)
            masked = batch.tokens == self.denoiser.mask_id
            self._fill(batch, masked)
        if trace is not None:
            trace.tokens, trace.filled = batch.tokens, masked
        return batch.tokens, batch.calls

    def _step(self, batch: _Batch, step: int, timetable: Timetable, uniform: Tensor, trace: Trace | None) -> None:
        masked = batch.tokens == self.denoiser.mask_id
        state = StepState(
            time=timetable.times[:, step],
            next_time=timetable.times[:, step + 1],
            count=None if timetable.counts is None else timetable.counts[:, step],
            masked=masked,
            free=batch.free,
            reveal_uniform=uniform[:, 0],
            remask_uniform=uniform[:, 2],
        )
        uses_feedback = self._in_band(state.time) & batch.has_candidates.any(1)
        # The next step feeds these candidates back. The last step is followed by a pass without feedback.
        feeds_next = self._in_band(state.next_time) & (step + 1 < self.steps)
        kept = masked & (feeds_next.unsqueeze(1) if trace is None else True)
        if self.rule.needs_certainty:
            assert state.count is not None
            drawn = masked & (state.count > 0).unsqueeze(1)
        else:
            change = self.rule.choose(state)
            drawn = change.reveal
            kept = kept & ~drawn if trace is None else kept
        calls = batch.calls.clone()
        # With `reuse`, later steps may take this prediction, and could not compute it: its feedback is gone by then.
        needed = (drawn | kept).any(1) | (uses_feedback & self.reuse)
        self._pass(batch, needed, uses_feedback, reuse=self.reuse, traced=trace is not None)
        tokens, certainty = self._predict(batch, drawn, kept, uniform[:, 1], traced=trace is not None)
        if self.rule.needs_certainty:
            change = self.rule.choose(replace(state, certainty=certainty))
        if trace is not None:
            trace.steps.append(batch.trace_step(state.time, batch.calls > calls))
        batch.tokens = torch.where(change.reveal, tokens, batch.tokens)
        batch.has_candidates = kept & ~change.reveal
        changed = change.reveal.any(1)
        if change.remask is not None:
            batch.tokens = batch.tokens.masked_fill(change.remask, self.denoiser.mask_id)
            changed = changed | change.remask.any(1)
        batch.is_current = batch.is_current & ~changed

    def _in_band(self, time: Tensor) -> Tensor:
        low, high = self.band
        return (time >= low) & (time <= high) & (self.feedback is not None)

    def _pass(self, batch: _Batch, needed: Tensor, uses_feedback: Tensor, *, reuse: bool, traced: bool) -> None:
        """Update the hidden states of the needed sequences (B,), with feedback where `uses_feedback` (B,) is set."""
        is_current = batch.is_current if reuse else batch.is_current & ~(batch.had_feedback | uses_feedback)
        run = needed & ~is_current
        if not bool(run.any()):
            return
        mask_id, table = self.denoiser.mask_id, self.denoiser.table
        tokens = send(batch.tokens[run], table.device)
        positions = batch.has_candidates & (uses_feedback & run).unsqueeze(1) & (batch.tokens == mask_id)
        batch.measures[run] = empty_measures()
        if self.feedback is not None and bool(positions.any()):
            dtype = torch.promote_types(table.dtype, torch.float32)
            candidates = batch.candidates(positions).to(table.device, dtype)
            in_run = send(positions[run], table.device)
            feedback = self.feedback.blend(tokens, candidates, table, mask_id, in_run, angle=traced)
            embeddings = feedback.embeddings
            if traced:
                batch.measures[positions] = measure(feedback, in_run)
        else:
            embeddings = embedding(tokens, table)
        seen = None if batch.seen is None or bool(batch.seen[run].all()) else send(batch.seen[run], table.device)
        hidden = hidden_of(self.denoiser, embeddings, seen)
        if batch.hidden is None:
            batch.hidden = hidden.new_zeros(len(batch.tokens), *hidden.shape[1:])
        batch.hidden[send(_indices(run), hidden.device)] = hidden
        batch.calls[run] += 1
        batch.is_current = batch.is_current | run
        batch.had_feedback = torch.where(run, uses_feedback, batch.had_feedback)

    def _predict(
        self, batch: _Batch, drawn: Tensor, kept: Tensor, uniform: Tensor, *, traced: bool
    ) -> tuple[Tensor, Tensor]:
        """Draw tokens (B, L) and their certainty (B, L) where `drawn` is set; store candidates where `kept` is set."""
        tokens, certainty = torch.zeros_like(batch.tokens), torch.zeros(batch.tokens.shape, dtype=torch.float64)
        mask_id, draws = self.denoiser.mask_id, []
        for positions, logits in self._logits(batch, drawn | kept):
            rows, at = _select(kept, positions, logits.device)
            if len(at):
                candidates = top_candidates(logits, batch.ids.shape[2], rows=rows, exclude=mask_id)
                batch.store(at, candidates)
                if traced:
                    batch.share.flatten()[at] = probability_of(candidates.ids, logits[rows], exclude=mask_id)
            rows, at = _select(drawn, positions, logits.device)
            if len(at):
                draws.append(self.filter.draw(logits, uniform.flatten()[at], rows=rows, exclude=mask_id))
        if draws:  # in the order of the positions, whatever the chunks
            chosen, probability = zip(*draws, strict=True)
            tokens[drawn] = torch.cat(chosen).cpu()
            if self.rule.needs_certainty:
                certainty[drawn] = torch.cat(probability).cpu()
        return tokens, certainty

    def _logits(self, batch: _Batch, positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the flat indices (M,) of marked positions (B, L) and their logits (M, V), in chunks.

        The special tokens of a denoiser that names them get no probability.
        """
        table, special = self.denoiser.table, list(getattr(self.denoiser, "special_ids", ()))
        for part in _indices(positions).split(block_rows(table.device, table.shape[0], **CHUNK)):
            if len(part):
                assert batch.hidden is not None
                logits = self.denoiser.logits(batch.hidden.flatten(0, 1)[send(part, batch.hidden.device)])
                if special:
                    logits[:, special] = -torch.inf
                yield part, logits

    def _fill(self, batch: _Batch, masked: Tensor) -> None:
        """Fill the positions that no step revealed with the most probable tokens, by a pass without feedback."""
        self._pass(batch, masked.any(1), torch.zeros_like(batch.is_current), reuse=False, traced=False)
        best = []
        for _, logits in self._logits(batch, masked):
            logits[:, self.denoiser.mask_id] = -torch.inf
            best.append(logits.argmax(-1))
        if best:
            batch.tokens[masked] = torch.cat(best).cpu()


@contextmanager
def _evaluation_mode(denoiser: Denoiser) -> Iterator[None]:
    """Put the modules of a denoiser into evaluation mode, and restore their modes afterwards."""
    training = [module for module in denoiser.modules() if module.training] if isinstance(denoiser, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _indices(marked: Tensor) -> Tensor:
    """Return the flat indices (M,) of what is marked."""
    return marked.flatten().nonzero().squeeze(1)


def _select(marked: Tensor, positions: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return those of the flat positions (M,) that are marked in (B, L): as rows, on a device, and as positions."""
    rows = _indices(marked.flatten()[positions])
    return send(rows, device), positions[rows]
