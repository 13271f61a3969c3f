"""Generate samples from a denoiser and settings: feedback by name, batches, and the output file.

Only `make_sampler` turns settings into a `Sampler`.

Shapes: L positions.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from arcmask.errors import ArcmaskError, check_range
from arcmask.feedback import Operator, SoftMask, find_operator
from arcmask.feedback.registry import Function
from arcmask.feedback.soft_mask import BAND
from arcmask.files import sha256, writable
from arcmask.model import Denoiser, autocast
from arcmask.model.denoiser import uses_bfloat16
from arcmask.progress import Progress
from arcmask.ranks import rank, world_size
from arcmask.rows import PaddedRows, Rows, counts_of, tokens_of, trimmed
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.prompts import Prompt, Prompts, open_prompts, pad_id_of, start_tokens
from arcmask.sampling.rules import Rule, find_rule
from arcmask.sampling.sample_file import SampleFile
from arcmask.sampling.sampler import Sampler
from arcmask.sampling.trace import Trace
from arcmask.settings import Precision
from arcmask.settings.sample import SampleConfig


@dataclass(frozen=True)
class Samples:
    """Samples, their cost, and optional traces."""

    tokens: Tensor  # (num, L); behind a sample's length, padding
    calls: Tensor  # (num,), denoiser calls
    texts: list[str] | None  # None if the denoiser has no tokenizer
    traces: list[Trace] | None  # one per batch, or None without `trace`
    lengths: Tensor  # (num,), tokens of each sample

    def tolist(self) -> list[list[int]]:
        """Return the ids of each sample, without padding."""
        return [row[:length] for row, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]


def sample(
    denoiser: Denoiser,
    num: int = 1,
    length: int | Sequence[int] | None = None,
    steps: int | None = None,
    feedback: SoftMask | str | Function | Operator | None = "trained",
    prompt: Prompt | Sequence[Prompt] | None = None,
    rule: str | Rule = "ancestral",
    top_p: float = 1.0,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 8,
    *,
    top_k: int | None = None,
    drop_crossing: bool = False,
    precision: Precision = "auto",
    budget: str | None = None,
    band: tuple[float, float] | None = None,
    reuse: bool = False,
    stop_at_end: bool = False,
    trace: bool = False,
    progress: bool = False,
) -> Samples:
    """Draw `num` samples of `length` positions in `steps` denoising steps (64 unless `budget` gives their number).

    `feedback` is "trained" (the denoiser's own), None, a SoftMask, or an operator: a name or a function. `prompt` is
    text or ids, one for all samples or a list with one for each. Each [MASK] (or the model's own mask token, or the
    mask's id) in it is a hole to fill; its other tokens are kept. Sample i depends only on (seed, i) and its prompt.
    `length` may be a list with one for each sample; shorter ones are padded, and `lengths` of the result has them.
    `progress` shows a bar with rate and time left. All other settings are those of `SampleConfig`.

    >>> import arcmask
    >>> samples = arcmask.sample(arcmask.load("sotu-tiny"), num=2, length=16, steps=4, prompt="the people")
    >>> samples.tokens.shape, samples.texts[0][:10]
    (torch.Size([2, 16]), 'the people')
    """
    config = SampleConfig(
        checkpoint="",
        num=num,
        length=length if isinstance(length, int) else None,
        steps=steps,
        budget=budget,
        band=band,
        reuse=reuse,
        stop_at_end=stop_at_end,
        rule=rule if isinstance(rule, str) else "ancestral",
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        drop_crossing=drop_crossing,
        seed=seed,
        batch_size=batch_size,
        precision=precision,
    )
    starts = start_tokens(denoiser, prompt, length, num)
    sampler = make_sampler(denoiser, config, starts, feedback, rule)
    _refuse_unused(config, sampler)
    parts = []
    with Progress("sampling", unit="samples", total=num) if progress else nullcontext() as bar:
        for batch in _batches(range(num), batch_size):
            parts.append(draw_batch(sampler, starts, batch, config, trace=trace))
            if bar is not None:
                bar.advance(len(batch))
    return Samples(
        tokens=torch.cat([part.tokens for part in parts] or [tokens_of(starts)]),
        calls=torch.cat([part.calls for part in parts] or [torch.zeros(0, dtype=torch.long)]),
        texts=None if parts and parts[0].texts is None else [text for part in parts for text in part.texts or ()],
        traces=[record for part in parts for record in part.traces or ()] if trace else None,
        lengths=torch.cat([part.lengths for part in parts] or [torch.zeros(0, dtype=torch.long)]),
    )


def check_settings(config: SampleConfig, feedback: Sequence[str | None] = ()) -> None:
    """Raise for settings that are wrong with any model, before one is loaded."""
    find_rule(config.rule)
    Filter.from_settings(config)
    Draws(config.seed, [])
    for name in (config.feedback, *feedback):
        if name is not None:
            find_operator(name)


def make_sampler(
    denoiser: Denoiser,
    config: SampleConfig,
    starts: Rows,
    feedback: SoftMask | str | Function | Operator | None,
    rule: str | Rule | None = None,
) -> Sampler:
    """Build the sampler of `config` for samples with these starts (N, L); `rule` replaces the rule of `config`."""
    if config.budget is not None and isinstance(starts, PaddedRows):
        raise ArcmaskError(
            f"budget is {config.budget}, a share of the length, but the samples have different lengths; give steps"
        )
    if config.stop_at_end:
        _end_id(denoiser)
    soft_mask = find_feedback(denoiser, feedback)
    low, high = config.band or (BAND if soft_mask is None else soft_mask.band)
    sampler = Sampler(
        denoiser=denoiser,
        rule=find_rule(config.rule if rule is None else rule),
        steps=config.steps_for(starts.shape[1]),
        feedback=soft_mask,
        filter=Filter.from_settings(config),
        band=(low, high),
        reuse=config.reuse,
    )
    for part in (sampler.filter, sampler.feedback):
        if part is not None:
            check_range(1, denoiser.table.shape[0], part, "top_k")
    return sampler


def generate(config: SampleConfig, load: Callable[[str], Denoiser]) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of each batch. With `config.out`, append them to that file and skip samples that it has.

    Under torchrun each process draws its share of the samples. `load` opens the checkpoint.
    """
    check_settings(config)
    out = None if config.out is None else writable(Path(config.out))
    prompts = open_prompts(config)
    denoiser = load(config.checkpoint)
    if prompts is None:
        starts = start_tokens(denoiser, config.prompt, config.length, config.num)
    else:
        starts = prompts.starts(denoiser, config.length, config.num)
    sampler = make_sampler(denoiser, config, starts, config.feedback or "trained")
    _refuse_unused(config, sampler)
    own_prompts = None if prompts is None else prompts.text
    file = None if out is None else SampleFile(out, _record_settings(config, sampler, starts.shape[1]), own_prompts)
    indices = [i for i in range(rank(), config.num, world_size()) if file is None or i not in file.indices]
    with Progress("sampling", unit="samples", total=len(indices)) if file is not None else nullcontext() as progress:
        for batch in _batches(indices, config.batch_size):
            records = _records(batch, draw_batch(sampler, starts, batch, config), config.checkpoint, prompts)
            if file is not None and progress is not None:
                file.append(records)
                progress.advance(len(records))
            yield records


def _refuse_unused(config: SampleConfig, sampler: Sampler) -> None:
    """Raise if the settings say when to use feedback, and there is none."""
    if sampler.feedback is None and config.band is not None:
        raise ArcmaskError("band has no effect, since there is no feedback; leave it out, or give feedback")


def _records(
    indices: Sequence[int], samples: Samples, checkpoint: str, prompts: Prompts | None
) -> list[dict[str, Any]]:
    texts: Sequence[str | None] = samples.texts or [None] * len(indices)
    return [
        {"index": index, "text": text, "tokens": tokens, "calls": calls, "checkpoint": checkpoint}
        | ({} if prompts is None else {"prompt": prompts.text(index)})
        for index, text, tokens, calls in zip(indices, texts, samples.tolist(), samples.calls.tolist(), strict=True)
    ]


def _record_settings(config: SampleConfig, sampler: Sampler, length: int | None) -> dict[str, Any]:
    """Return all that a sample depends on, except its index. A hash of the embedding table stands for the model."""
    table, feedback = sampler.denoiser.table, sampler.feedback
    content = table.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    # With a file of prompts, each sample records its own prompt, which sets its length if it has holes.
    prompt, length = ({"prompt": config.prompt}, length) if config.prompts is None else ({}, config.length)
    return {
        "seed": config.seed,
        "steps": sampler.steps,
        "length": length,
        "rule": config.rule,
        "feedback": "none" if feedback is None else feedback.operator,
        "feedback_settings": None if feedback is None else feedback.settings(with_band=False),
        "band": list(sampler.band),
        "reuse": sampler.reuse,
        "stop_at_end": config.stop_at_end,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "drop_crossing": config.drop_crossing,
        "top_k": config.top_k,
        **prompt,
        "precision": "bfloat16" if uses_bfloat16(config.precision, table.device) else "float32",
        "model": sha256(content)[:16],
    }


def draw_batch(
    sampler: Sampler, starts: Rows, indices: Sequence[int], config: SampleConfig, *, trace: bool = False
) -> Samples:
    """Draw the samples with these indices as one batch; row i of `starts` (num, L) is the start of sample i."""
    denoiser, rows = sampler.denoiser, starts[list(indices)]
    tokenizer = getattr(denoiser, "tokenizer", None)
    record = Trace(denoiser.mask_id) if trace else None
    lengths = counts_of(rows)
    draws = Draws(config.seed, indices, lengths.tolist() if isinstance(rows, PaddedRows) else None)
    is_free = tokens_of(rows) == denoiser.mask_id
    with autocast(config.precision, denoiser.table.device):
        tokens, calls = sampler.run(trimmed(rows, is_free)[0], draws, record)
    tokens = pad(tokens, (0, starts.shape[1] - tokens.shape[1]), value=pad_id_of(denoiser))
    if config.stop_at_end:
        ends = is_free & (tokens == _end_id(denoiser))
        lengths = torch.where(ends.any(1), ends.long().argmax(1), lengths)
        tokens = tokens.masked_fill(torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1), pad_id_of(denoiser))
    samples = Samples(tokens, calls, None, None if record is None else [record], lengths)
    texts = None if tokenizer is None else [tokenizer.decode_row(row) for row in samples.tolist()]
    return replace(samples, texts=texts)


def _end_id(denoiser: Any) -> int:
    """Return the id of end-of-text; raise if there is none."""
    end_id = getattr(getattr(denoiser, "tokenizer", None), "end_id", None)
    if end_id is None:
        raise ArcmaskError("stop_at_end is set, but the model has no tokenizer with an end-of-text token")
    return end_id


def _batches(indices: Sequence[int], size: int) -> list[Sequence[int]]:
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def find_feedback(denoiser: Any, feedback: SoftMask | str | Function | Operator | None) -> SoftMask | None:
    """Return the feedback of a name or function. An operator keeps the trained candidates and confidence, if any."""
    trained: SoftMask | None = getattr(denoiser, "feedback", None)
    if isinstance(feedback, str) and feedback == "trained":
        feedback = trained
    elif feedback is not None and not isinstance(feedback, SoftMask):
        settings = () if trained is None else (trained.top_k, trained.karcher_steps, trained.confidence, trained.band)
        if feedback != "none" and (trained is None or trained.operator == "none"):
            warnings.warn(
                "the model has no feedback of its own, so the default weights are used; `arcmask tune` fits them",
                stacklevel=3,
            )
        feedback = SoftMask(feedback, *settings)
    if feedback is None or feedback.operator == "none":
        return None
    feedback.record.require()
    return feedback
