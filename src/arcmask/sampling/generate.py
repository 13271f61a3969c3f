"""From a denoiser and settings to samples: prompts, feedback by name, batches, and the file they go to.

`make_sampler` is the one place where settings become a `Sampler`. Shapes: L positions.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask, find_operator
from arcmask.files import writable
from arcmask.model import Denoiser, autocast, has_fast_bfloat16
from arcmask.progress import Progress
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.loop import Sampler
from arcmask.sampling.rules import Rule, find_rule
from arcmask.sampling.sample_file import SampleFile
from arcmask.sampling.trace import Trace
from arcmask.settings import Precision
from arcmask.settings.sample import SampleConfig

HOLE = "[MASK]"
Prompt = str | Sequence[int] | Tensor


@dataclass(frozen=True)
class Samples:
    """Samples, and what they cost."""

    tokens: Tensor  # (num, L)
    calls: Tensor  # (num,) denoiser calls
    texts: list[str] | None  # if the denoiser has a tokenizer
    traces: list[Trace] | None  # one per batch, if asked for


def sample(
    denoiser: Denoiser,
    num: int = 1,
    length: int | None = None,
    steps: int = 64,
    feedback: SoftMask | str | None = "trained",
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
    trace: bool = False,
) -> Samples:
    """Draw `num` samples of `length` positions in `steps` denoising steps.

    `feedback` is "trained" (the denoiser's own), None, a SoftMask, or the name of an operator. `prompt` is text or ids
    with holes ([MASK], or the mask's id), one for all samples or a list with one for each; the rest of it is kept.
    Sample i depends only on (seed, i) and its prompt.

    >>> import arcmask
    >>> samples = arcmask.sample(arcmask.load("sotu-tiny"), num=2, length=16, steps=4, prompt="the people")
    >>> samples.tokens.shape, samples.texts[0][:10]
    (torch.Size([2, 16]), 'the people')
    """
    config = SampleConfig(
        checkpoint="",
        num=num,
        length=length,
        steps=steps,
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
    sampler = make_sampler(denoiser, config, starts.shape[1], feedback, rule)
    parts = list(in_batches(sampler, starts, range(num), config, trace=trace))
    tokens = torch.cat([part.tokens for part in parts]) if parts else starts
    calls = torch.cat([part.calls for part in parts]) if parts else torch.zeros(0, dtype=torch.long)
    texts = None if parts and parts[0].texts is None else [text for part in parts for text in part.texts or ()]
    traces = [trace for part in parts for trace in part.traces or ()] if trace else None
    return Samples(tokens=tokens, calls=calls, texts=texts, traces=traces)


def check_settings(config: SampleConfig, feedback: Sequence[str | None] = ()) -> None:
    """Raise for anything that is wrong with the settings alone, before a model is loaded."""
    find_rule(config.rule)
    Filter.from_settings(config)
    Draws(config.seed, [])
    for name in (config.feedback, *feedback):
        if name is not None:
            find_operator(name)


def make_sampler(
    denoiser: Denoiser,
    config: SampleConfig,
    length: int,
    feedback: SoftMask | str | None,
    rule: str | Rule | None = None,
) -> Sampler:
    """Build the sampler of some settings, for samples of that length."""
    return Sampler(
        denoiser=denoiser,
        rule=find_rule(config.rule if rule is None else rule),
        steps=config.steps_for(length),
        feedback=find_feedback(denoiser, feedback),
        filter=Filter.from_settings(config),
    )


def generate(config: SampleConfig, load: Callable[[str], Denoiser]) -> Iterator[list[dict[str, Any]]]:
    """Yield the records of each batch; with `config.out`, append them there and draw only what it does not have.

    Under torchrun every process draws its share of the samples. `load` opens the checkpoint.
    """
    check_settings(config)
    out = None if config.out is None else writable(Path(config.out))
    denoiser = load(config.checkpoint)
    starts = start_tokens(denoiser, config.prompt, config.length, config.num)
    sampler = make_sampler(denoiser, config, starts.shape[1], config.feedback or "trained")
    file = None if out is None else SampleFile(out, _record_settings(config, sampler, starts.shape[1]))
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    indices = [i for i in range(rank, config.num, world) if file is None or i not in file.indices]
    with Progress("sampling", unit="samples", total=len(indices)) if file is not None else nullcontext() as progress:
        for samples, start in zip(
            in_batches(sampler, starts, indices, config), range(0, len(indices), config.batch_size), strict=True
        ):
            records = _records(indices[start : start + config.batch_size], samples, config.checkpoint)
            if file is not None and progress is not None:
                file.append(records)
                progress.advance(len(records))
            yield records


def _records(indices: list[int], samples: Samples, checkpoint: str) -> list[dict[str, Any]]:
    texts: Sequence[str | None] = samples.texts or [None] * len(indices)
    return [
        {"index": index, "text": text, "tokens": tokens, "calls": calls, "checkpoint": checkpoint}
        for index, text, tokens, calls in zip(
            indices, texts, samples.tokens.tolist(), samples.calls.tolist(), strict=True
        )
    ]


def _record_settings(config: SampleConfig, sampler: Sampler, length: int) -> dict[str, Any]:
    """Return what a sample depends on, apart from its index. The model is known by its weights, not by its path."""
    table, feedback = sampler.denoiser.table, sampler.feedback
    is_fast = config.precision == "bfloat16" or (config.precision == "auto" and has_fast_bfloat16(table.device))
    content = table.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return {
        "seed": config.seed,
        "steps": sampler.steps,
        "length": length,
        "rule": config.rule,
        "feedback": "none" if feedback is None else feedback.operator,
        "feedback_settings": None if feedback is None else feedback.settings(),
        "temperature": config.temperature,
        "top_p": config.top_p,
        "drop_crossing": config.drop_crossing,
        "top_k": config.top_k,
        "prompt": config.prompt,
        "precision": "bfloat16" if is_fast else "float32",
        "model": hashlib.sha256(content).hexdigest()[:16],
    }


def in_batches(
    sampler: Sampler, starts: Tensor, indices: Sequence[int], config: SampleConfig, *, trace: bool = False
) -> Iterator[Samples]:
    """Yield the samples with these indices, one batch at a time; `starts` has a row for each index from 0 on."""
    tokenizer = getattr(sampler.denoiser, "tokenizer", None)
    for start in range(0, len(indices), config.batch_size):
        chosen = list(indices[start : start + config.batch_size])
        record = Trace(sampler.denoiser.mask_id) if trace else None
        with autocast(config.precision, sampler.denoiser.table.device):
            tokens, calls = sampler.run(starts[chosen], Draws(config.seed, chosen), record)
        texts = None if tokenizer is None else [tokenizer.decode(row) for row in tokens.tolist()]
        yield Samples(tokens=tokens, calls=calls, texts=texts, traces=None if record is None else [record])


def find_feedback(denoiser: Any, feedback: SoftMask | str | None) -> SoftMask | None:
    """Return the feedback that a name stands for; an operator keeps the trained candidates and confidence, if any."""
    trained: SoftMask | None = getattr(denoiser, "feedback", None)
    if feedback == "trained":
        feedback = trained
    elif isinstance(feedback, str):
        feedback = (
            SoftMask(feedback)
            if trained is None
            else SoftMask(feedback, trained.top_k, trained.karcher_steps, trained.confidence)
        )
    if feedback is None or feedback.operator == "none":
        return None
    feedback.record.require()
    if trained is None or trained.operator == "none":
        warnings.warn("the model was not trained with feedback; feedback is used all the same", stacklevel=3)
    return feedback


def start_tokens(denoiser: Denoiser, prompt: Prompt | Sequence[Prompt] | None, length: int | None, num: int) -> Tensor:
    """Return (num, L): the prompt of each sample, followed by masks up to the length."""
    prompts, is_shared = _listed(prompt)
    if not is_shared and len(prompts) != num:
        raise ArcmaskError(f"there are {len(prompts)} prompts for {num} samples")
    ids = [prompt_ids(denoiser, one) for one in prompts]
    if length is None:
        # A prompt with holes has its own length; one without is continued.
        lengths = {len(row) if denoiser.mask_id in row else denoiser.max_length for row in ids}
        if len(lengths) > 1:
            raise ArcmaskError(f"the prompts have different lengths ({sorted(lengths, key=str)}); give one length")
        (length,) = lengths or {denoiser.max_length}
    if length is None:
        raise ArcmaskError("the model has no length of its own; give one")
    if length < 1:
        raise ArcmaskError(f"the length is {length}, but must be 1 or more")
    if denoiser.max_length is not None and length > denoiser.max_length:
        raise ArcmaskError(f"the length is {length}, but the model takes at most {denoiser.max_length} positions")
    for row in ids:
        if len(row) > length:
            raise ArcmaskError(f"the prompt has {len(row)} tokens, but a sample has {length} positions")
    rows = [row + [denoiser.mask_id] * (length - len(row)) for row in ids]
    return torch.tensor(rows * num if is_shared else rows, dtype=torch.long).reshape(num, length)


def _listed(prompt: Any) -> tuple[list[Any], bool]:
    """Return the prompts as a list, and whether it is one prompt for all samples."""
    if prompt is None or isinstance(prompt, str):
        return [prompt], True
    prompts = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    is_one = not prompts or isinstance(prompts[0], (int, np.integer))
    return ([prompts], True) if is_one else (prompts, False)


def prompt_ids(denoiser: Any, prompt: Prompt | None) -> list[int]:
    """Return the ids of a prompt, with the mask's id for each hole."""
    if prompt is None:
        return []
    ids = _encode(denoiser, prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
    size = denoiser.table.shape[0]
    outside = [token for token in ids if not 0 <= token < size]
    if outside:
        raise ArcmaskError(f"the prompt has the id {outside[0]}, but ids run from 0 to {size - 1}")
    return ids


def _encode(denoiser: Any, prompt: str) -> list[int]:
    tokenizer = getattr(denoiser, "tokenizer", None)
    if tokenizer is None:
        raise ArcmaskError("the model has no tokenizer; give the prompt as ids")
    first, *others = [tokenizer.encode(piece) if piece else [] for piece in prompt.split(HOLE)]
    return [*first, *(token for piece in others for token in (denoiser.mask_id, *piece))]
