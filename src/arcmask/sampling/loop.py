"""The sampler's loop: reveal, predict what is needed, feed back, until nothing is masked.

Knows a denoiser, a step rule and feedback. It asks the denoiser only for what a step uses: which positions are revealed
is drawn first, so that only their rows need logits, unless the next step is fed back. A sequence of which nothing is
needed is not run, and one whose tokens have not changed since its last plain pass keeps the hidden states of that pass;
both are exact. Nothing of size (B, L, V) exists, and between steps K candidates a position are kept.

Shapes: B sequences, L positions, V vocabulary, H hidden width, M rows, K candidates.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from arcmask.candidates import Candidates, top_candidates
from arcmask.feedback import SoftMask
from arcmask.model import Denoiser
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.rules import Rule, StepState, Timetable
from arcmask.sampling.trace import Trace, TraceStep, held_share, measure, nothing_fed

# Logits that exist at a time.
_CHUNK = 1 << 24
# Candidates that a trace shows when there is no feedback to say how many.
_SHOWN = 3


class _Batch:
    """Sequences under way: their tokens, what is known of them, and what it has cost."""

    def __init__(self, tokens: Tensor, mask_id: int, k: int) -> None:
        self.tokens = tokens.clone()  # (B, L)
        self.free = tokens == mask_id  # (B, L)
        self.calls = torch.zeros(len(tokens), dtype=torch.long)
        self.hidden: Tensor | None = None  # (B, L, H) of each sequence's last pass
        self.current = torch.zeros(len(tokens), dtype=torch.bool)  # that pass was plain and saw these very tokens
        # Candidates of the step before, at the positions where `predicted` says so.
        self.predicted = torch.zeros_like(self.free)
        self.ids = torch.zeros(*tokens.shape, k, dtype=torch.long)
        self.probs = torch.zeros(*tokens.shape, k, dtype=torch.float64)
        self.entropy = torch.zeros(tokens.shape, dtype=torch.float64)
        # For a trace: the share of a prediction that its candidates have, and the feedback in the last pass.
        self.share = torch.zeros(tokens.shape, dtype=torch.float64)
        self.fed = nothing_fed(*tokens.shape)

    def candidates(self, positions: Tensor) -> Candidates:
        return Candidates(ids=self.ids[positions], probs=self.probs[positions], entropy=self.entropy[positions])


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """What all batches of a run have in common. The band is the closed interval of times that are fed back."""

    denoiser: Denoiser
    rule: Rule
    steps: int
    feedback: SoftMask | None
    filter: Filter
    band: tuple[float, float] = (0.2, 0.8)

    @torch.no_grad()
    def run(self, tokens: Tensor, draws: Draws, trace: Trace | None = None) -> tuple[Tensor, Tensor]:
        """(B, L) with masks -> the same without, and the denoiser calls (B,) that each sequence took."""
        # Dropout would make a sample depend on more than its seed.
        with _evaluating(self.denoiser):
            return self._run(tokens, draws, trace)

    def _run(self, tokens: Tensor, draws: Draws, trace: Trace | None) -> tuple[Tensor, Tensor]:
        k = _SHOWN if self.feedback is None else self.feedback.top_k
        batch = _Batch(tokens, self.denoiser.mask_id, min(k, self.denoiser.table.shape[0]))
        timetable = self.rule.timetable(self.steps, batch.free, draws)
        for step in range(self.steps):
            self._step(batch, step, timetable, draws.uniform(3, tokens.shape[1]), trace)
        masked = batch.tokens == self.denoiser.mask_id
        self._remove_noise(batch, masked)
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
        fed = self._in_band(state.time) & batch.predicted.any(1)
        # Rows whose candidates the next step feeds back; the last step is followed by a plain pass.
        ahead = self._in_band(state.next_time) & (step + 1 < self.steps)
        kept = masked & (ahead.unsqueeze(1) if trace is None else True)
        if self.rule.needs_certainty:
            assert state.count is not None
            drawn = masked & (state.count > 0).unsqueeze(1)
        else:
            change = self.rule.choose(state)
            drawn = change.reveal
            kept = kept & ~drawn if trace is None else kept
        calls = batch.calls.clone()
        self._pass(batch, (drawn | kept).any(1), fed, traced=trace is not None)
        tokens, certainty = self._predict(batch, drawn, kept, uniform[:, 1], traced=trace is not None)
        if self.rule.needs_certainty:
            change = self.rule.choose(replace(state, certainty=certainty))
        if trace is not None:
            trace.steps.append(_record(batch, state, batch.calls > calls))
        batch.tokens = torch.where(change.reveal, tokens, batch.tokens)
        batch.predicted = kept & ~change.reveal
        changed = change.reveal.any(1)
        if change.remask is not None:
            batch.tokens = batch.tokens.masked_fill(change.remask, self.denoiser.mask_id)
            changed = changed | change.remask.any(1)
        batch.current = batch.current & ~changed

    def _in_band(self, time: Tensor) -> Tensor:
        low, high = self.band
        return (time >= low) & (time <= high) & (self.feedback is not None)

    def _pass(self, batch: _Batch, wanted: Tensor, fed: Tensor, *, traced: bool) -> None:
        """Bring the hidden states of the wanted sequences up to date, with feedback for those that are fed."""
        run = wanted & (fed | ~batch.current)
        if not bool(run.any()):
            return
        tokens, table = batch.tokens[run], self.denoiser.table
        on_device = tokens.to(table.device)
        positions = batch.predicted[run] & fed[run].unsqueeze(1) & (tokens == self.denoiser.mask_id)
        batch.fed[run] = nothing_fed()
        if self.feedback is not None and bool(positions.any()):
            chosen = torch.zeros_like(batch.free)
            chosen[run] = positions
            wide = torch.promote_types(table.dtype, torch.float32)
            candidates = batch.candidates(chosen).to(table.device, wide)
            feedback = self.feedback.blend(
                on_device, candidates, table, self.denoiser.mask_id, positions.to(table.device)
            )
            embeddings = feedback.embeddings
            if traced:
                batch.fed[chosen] = measure(feedback, positions.to(table.device))
        else:
            embeddings = embedding(on_device, table)
        hidden = self.denoiser.hidden(embeddings)
        if batch.hidden is None:
            batch.hidden = hidden.new_zeros(len(batch.tokens), *hidden.shape[1:])
        batch.hidden[run.to(hidden.device)] = hidden
        batch.calls[run] += 1
        batch.current = torch.where(run, ~fed, batch.current)

    def _predict(
        self, batch: _Batch, drawn: Tensor, kept: Tensor, uniform: Tensor, *, traced: bool
    ) -> tuple[Tensor, Tensor]:
        """Tokens (B, L) and their certainty where `drawn`; candidates, into the batch, where `kept`."""
        tokens, certainty = torch.zeros_like(batch.tokens), torch.zeros(batch.tokens.shape, dtype=torch.float64)
        for rows, logits in self._logits(batch, drawn | kept):
            at = (rows[:, 0], rows[:, 1])
            wanted = kept[at]
            if bool(wanted.any()):
                found = top_candidates(
                    logits, batch.ids.shape[2], rows=_places(wanted, logits), exclude=self.denoiser.mask_id
                )
                keep = (rows[wanted, 0], rows[wanted, 1])
                batch.ids[keep], batch.probs[keep] = found.ids.cpu(), found.probs.double().cpu()
                batch.entropy[keep] = found.entropy.double().cpu()
                if traced:
                    batch.share[keep] = held_share(logits[_places(wanted, logits)], found.ids, self.denoiser.mask_id)
            wanted = drawn[at]
            if bool(wanted.any()):
                draw = (rows[wanted, 0], rows[wanted, 1])
                picked, share = self.filter.draw(
                    logits, uniform[draw], rows=_places(wanted, logits), exclude=self.denoiser.mask_id
                )
                tokens[draw], certainty[draw] = picked.cpu(), share.cpu()
        return tokens, certainty

    def _logits(self, batch: _Batch, positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The (sequence, position) of so many rows at a time (M, 2), and their logits (M, V)."""
        rows = positions.nonzero()
        height = max(1, _CHUNK // self.denoiser.table.shape[0])
        for part in rows.split(height):
            if len(part):
                assert batch.hidden is not None
                place = part.to(batch.hidden.device)
                yield part, self.denoiser.logits(batch.hidden[place[:, 0], place[:, 1]])

    def _remove_noise(self, batch: _Batch, masked: Tensor) -> None:
        """What is still masked after the last step is filled in greedily, by a plain pass."""
        self._pass(batch, masked.any(1), torch.zeros_like(batch.current), traced=False)
        for rows, logits in self._logits(batch, masked):
            logits[:, self.denoiser.mask_id] = -torch.inf
            batch.tokens[rows[:, 0], rows[:, 1]] = logits.argmax(-1).cpu()


@contextmanager
def _evaluating(denoiser: Denoiser) -> Iterator[None]:
    """Modules in evaluation mode, and afterwards in the mode they were in."""
    training = [module for module in denoiser.modules() if module.training] if isinstance(denoiser, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _places(wanted: Tensor, logits: Tensor) -> Tensor:
    return wanted.nonzero().squeeze(1).to(logits.device)


def _record(batch: _Batch, state: StepState, called: Tensor) -> TraceStep:
    return TraceStep(
        time=state.time.clone(),
        tokens=batch.tokens.clone(),
        fed=batch.fed.clone(),
        ids=batch.ids.clone(),
        probs=batch.probs.clone(),
        share=batch.share.clone(),
        entropy=batch.entropy.clone(),
        called=called,
    )
