"""Draw one sample with each of several operators from the same seed, and record traces for the explorer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from arcmask.data.tokenizers import token_bytes
from arcmask.errors import ArcmaskError
from arcmask.feedback import Operator, find_operator
from arcmask.model import Denoiser
from arcmask.progress import Progress, announce
from arcmask.sampling.generate import Samples, check_settings, draw_batch, make_sampler
from arcmask.sampling.prompts import prompt_ids, start_tokens
from arcmask.sampling.sampler import Sampler
from arcmask.settings.explore import ExploreConfig
from arcmask.settings.sample import SampleConfig

_LENGTH = 128  # default number of positions; more do not fit side by side on a screen


@dataclass(frozen=True)
class ArmTrace:
    """The sample of one arm. `trace` is from `Trace.to_json`; `confidence` lists the confidence settings."""

    operator: Operator
    text: str
    calls: int
    trace: dict[str, Any]
    confidence: str | None


@dataclass(frozen=True)
class ArmTraces:
    """The samples of all arms, and the values that they share."""

    arms: list[ArmTrace]
    pieces: dict[int, bytes]  # the bytes of every token that occurs
    mask_id: int
    band: tuple[float, float]  # times with feedback
    steps: int
    length: int


def trace_arms(config: ExploreConfig, load: Callable[[str], Denoiser]) -> ArmTraces:
    """Draw one sample with each operator of `config.feedback`. `load` opens the checkpoint."""
    settings = replace(config.sample, num=1, batch_size=1)
    check_settings(settings, config.feedback)
    denoiser = load(settings.checkpoint)
    tokenizer = getattr(denoiser, "tokenizer", None)
    if tokenizer is None:
        raise ArcmaskError(f"{settings.checkpoint} has no tokenizer, so there is no text to show")
    starts = start_tokens(denoiser, settings.prompt, _length(settings, denoiser), 1)
    arms = []
    with Progress("sampling", unit="arms", total=len(config.feedback)) as progress:
        for name in config.feedback:
            sampler = make_sampler(denoiser, settings, starts, name)
            samples = draw_batch(sampler, starts, [0], settings, trace=True)
            arms.append(_arm_trace(find_operator(name), sampler, samples))
            _watch(name, sampler, samples)
            progress.advance(1)
    return ArmTraces(
        arms=arms,
        pieces=token_bytes(tokenizer, _tokens(arms) - {denoiser.mask_id}),
        mask_id=denoiser.mask_id,
        band=sampler.band,
        steps=sampler.steps,
        length=starts.shape[1],
    )


def _arm_trace(operator: Operator, sampler: Sampler, samples: Samples) -> ArmTrace:
    assert samples.texts is not None
    assert samples.traces is not None
    return ArmTrace(
        operator=operator,
        text=samples.texts[0],
        calls=int(samples.calls[0]),
        trace=samples.traces[0].to_json(),
        confidence=None if sampler.feedback is None else sampler.feedback.confidence.extra_repr(),
    )


def _watch(name: str, sampler: Sampler, samples: Samples) -> None:
    """Say that the weights of an arm are all near 0 or all near their top."""
    steps = [step for trace in samples.traces or () for step in trace.steps]
    measures = torch.cat([step.measures.flatten(0, 1) for step in steps])
    weights = measures[~measures[:, 1].isnan(), 0]  # a position without feedback has no angle
    if sampler.feedback is not None and len(weights):
        extreme = sampler.feedback.confidence.describe_extreme(weights)
        if extreme is not None:
            announce(f"{name}: {extreme}")


def _length(config: SampleConfig, denoiser: Denoiser) -> int | None:
    """Return the length of a page: by default 128 or twice the prompt, at most the model's; None for that of holes."""
    ids = prompt_ids(denoiser, config.prompt)
    if config.length is not None or denoiser.mask_id in ids:
        return config.length
    length = max(_LENGTH, 2 * len(ids))
    return length if denoiser.max_length is None else min(length, denoiser.max_length)


def _tokens(arms: Sequence[ArmTrace]) -> set[int]:
    """Collect every id in the prompts, predictions and samples."""
    ids: set[int] = set()
    for arm in arms:
        ids.update(arm.trace["start"], arm.trace["tokens"])
        for step in arm.trace["steps"]:
            ids.update(token for _, token in step["revealed"])
            for row in step["masked"]:
                ids.update(row[4])
    return ids
