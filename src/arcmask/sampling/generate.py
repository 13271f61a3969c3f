"""`sample`: from a denoiser and a few settings to texts. Knows prompts, feedback by name, and batches.

Shapes: L positions.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask
from arcmask.model import Denoiser, Precision, autocast
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.loop import Sampler
from arcmask.sampling.rules import Rule, find_rule
from arcmask.sampling.trace import Trace

HOLE = "[MASK]"
Prompt = str | Sequence[int] | Tensor


@dataclass(frozen=True)
class Samples:
    """What was sampled: tokens (num, L), the denoiser calls (num,) that each took, and traces if asked for."""

    tokens: Tensor
    calls: Tensor
    texts: list[str] | None  # if the denoiser has a tokenizer
    traces: list[Trace] | None  # one for each batch, in order


def sample(
    denoiser: Denoiser,
    num: int = 1,
    length: int | None = None,
    steps: int = 64,
    feedback: "SoftMask | str | None" = "trained",
    prompt: Prompt | Sequence[Prompt] | None = None,
    rule: str | Rule = "ancestral",
    top_p: float = 1.0,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 8,
    *,
    top_k: int | None = None,
    precision: Precision = "auto",
    trace: bool = False,
) -> Samples:
    """`num` samples of `length` positions in `steps` denoising steps.

    `feedback` is "trained" (what the denoiser comes with), None, a SoftMask, or an operator's name. `prompt` is text or
    ids with holes ([MASK], or the mask's id), for all samples or a list with one for each; what is given never changes.
    Sample i depends on (seed, i) and its prompt alone.
    """
    if num < 0:
        raise ArcmaskError(f"num is {num}, but must be 0 or more")
    starts = start_tokens(denoiser, prompt, length, num)
    sampler = Sampler(
        denoiser=denoiser,
        rule=find_rule(rule),
        steps=checked_steps(steps),
        feedback=find_feedback(denoiser, feedback),
        filter=Filter(temperature=temperature, top_p=top_p, top_k=top_k),
    )
    parts = list(in_batches(sampler, starts, range(num), seed, batch_size, precision, trace=trace))
    tokens = torch.cat([part.tokens for part in parts]) if parts else starts[:0]
    calls = torch.cat([part.calls for part in parts]) if parts else torch.zeros(0, dtype=torch.long)
    texts = None if parts and parts[0].texts is None else [text for part in parts for text in part.texts or ()]
    traces = [trace for part in parts for trace in part.traces or ()] if trace else None
    return Samples(tokens=tokens, calls=calls, texts=texts, traces=traces)


def in_batches(
    sampler: Sampler,
    starts: Tensor,
    indices: Sequence[int],
    seed: int,
    batch_size: int,
    precision: Precision,
    *,
    trace: bool = False,
) -> Iterator[Samples]:
    """The samples of those indices, a batch at a time; `starts` has a row for each index from 0 on."""
    if batch_size < 1:
        raise ArcmaskError(f"batch_size is {batch_size}, but must be 1 or more")
    tokenizer = getattr(sampler.denoiser, "tokenizer", None)
    for begin in range(0, len(indices), batch_size):
        chosen = list(indices[begin : begin + batch_size])
        record = Trace(sampler.denoiser.mask_id) if trace else None
        with autocast(precision, sampler.denoiser.table.device):
            tokens, calls = sampler.run(starts[chosen], Draws(seed, chosen), record)
        texts = None if tokenizer is None else [tokenizer.decode(row) for row in tokens.tolist()]
        yield Samples(tokens=tokens, calls=calls, texts=texts, traces=None if record is None else [record])


def checked_steps(steps: int) -> int:
    """A number of steps, or an error."""
    if steps < 1:
        raise ArcmaskError(f"steps is {steps}, but must be 1 or more")
    return steps


def find_feedback(denoiser: Any, feedback: "SoftMask | str | None") -> SoftMask | None:
    """The feedback that is meant; an operator's name keeps the trained candidates and confidence, if there are any."""
    trained = getattr(denoiser, "feedback", None)
    if feedback == "trained":
        feedback = trained
    elif isinstance(feedback, str):
        if trained is None:
            feedback = SoftMask(feedback)
        else:
            feedback = SoftMask(feedback, trained.top_k, trained.karcher_steps, trained.confidence)
    if feedback is None or feedback.operator == "none":
        return None
    if trained is None or trained.operator == "none":
        warnings.warn("the model was not trained with feedback; it is fed back all the same", stacklevel=3)
    return feedback.to(denoiser.table.device)


def start_tokens(denoiser: Denoiser, prompt: Prompt | Sequence[Prompt] | None, length: int | None, num: int) -> Tensor:
    """(num, L): the prompt of each sample, and masks behind it up to the length."""
    several: Any = prompt
    if not (prompt is None or isinstance(prompt, str)):
        several = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    one_for_all = (
        several is None or isinstance(several, str) or not several or isinstance(several[0], (int, np.integer))
    )
    prompts: list[Any] = [several] if one_for_all else several
    if not one_for_all and len(prompts) != num:
        raise ArcmaskError(f"there are {len(prompts)} prompts for {num} samples")
    given = [prompt_ids(denoiser, one) for one in prompts]
    if length is None:
        # A text with holes is as long as it is; one without is continued.
        own = {len(ids) if denoiser.mask_id in ids else denoiser.max_length for ids in given}
        if len(own) > 1:
            raise ArcmaskError(
                f"the prompts are of different lengths ({sorted(own, key=str)}); give one length for all"
            )
        (length,) = own or {denoiser.max_length}
    if length is None:
        raise ArcmaskError("the model has no length of its own; give one")
    if length < 1:
        raise ArcmaskError(f"the length is {length}, but must be 1 or more")
    if denoiser.max_length is not None and length > denoiser.max_length:
        raise ArcmaskError(f"the length is {length}, but the model takes at most {denoiser.max_length} positions")
    for ids in given:
        if len(ids) > length:
            raise ArcmaskError(f"the prompt has {len(ids)} tokens, but a sample has {length} positions")
    rows = [ids + [denoiser.mask_id] * (length - len(ids)) for ids in given]
    return torch.tensor(rows * num if one_for_all else rows, dtype=torch.long).reshape(num, length)


def prompt_ids(denoiser: Any, prompt: Prompt | None) -> list[int]:
    """The ids of a prompt, the mask's among them for its holes."""
    if prompt is None:
        return []
    ids = _encode(denoiser, prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
    size = denoiser.table.shape[0]
    wrong = [token for token in ids if not 0 <= token < size]
    if wrong:
        raise ArcmaskError(f"the prompt has the id {wrong[0]}, but ids run from 0 to {size - 1}")
    return ids


def _encode(denoiser: Any, prompt: str) -> list[int]:
    tokenizer = getattr(denoiser, "tokenizer", None)
    if tokenizer is None:
        raise ArcmaskError("the model has no tokenizer; give the prompt as ids")
    pieces = [tokenizer.encode(piece) if piece else [] for piece in prompt.split(HOLE)]
    ids = list(pieces[0])
    for piece in pieces[1:]:
        ids += [denoiser.mask_id, *piece]
    return ids
