"""One sample by several arms from the same seed, with traces: what the explorer shows, as plain data.

Knows a checkpoint and its tokenizer; not how a trace is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from arcmask.data.pieces import token_bytes
from arcmask.errors import ArcmaskError
from arcmask.feedback.registry import find_operator
from arcmask.model import Denoiser, Precision
from arcmask.progress import Progress
from arcmask.sampling.config import SampleConfig
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.generate import Samples, checked_steps, find_feedback, in_batches, prompt_ids, start_tokens
from arcmask.sampling.loop import Sampler
from arcmask.sampling.rules import find_rule

# Positions of a sample if nobody says: more than these do not fit on a screen side by side.
_LENGTH = 128


@dataclass(frozen=True)
class ArmTrace:
    """What one arm did: `trace` is `Trace.to_json`, and `confidence` says how weights came about."""

    operator: str
    text: str
    calls: int
    trace: dict[str, Any]
    confidence: str | None


@dataclass(frozen=True)
class ArmTraces:
    """All arms; and what they share: the bytes of every token that occurs, the mask's id, the band, the length."""

    arms: list[ArmTrace]
    pieces: dict[int, bytes]
    mask_id: int
    band: tuple[float, float]
    length: int


def trace_arms(config: SampleConfig, operators: Sequence[str], load: Callable[[str], Denoiser]) -> ArmTraces:
    """Sample once with each operator. `load` opens the checkpoint, after all that the settings alone can tell."""
    for name in operators:
        find_operator(name)
    rule = find_rule(config.rule)
    filter_ = Filter(temperature=config.temperature, top_p=config.top_p, top_k=config.top_k)
    checked_steps(config.steps_for(1))
    Draws(config.seed, [])  # for its check of the seed
    denoiser = load(config.checkpoint)
    tokenizer = getattr(denoiser, "tokenizer", None)
    if tokenizer is None:
        raise ArcmaskError(f"{config.checkpoint} has no tokenizer, so that there is no text to show")
    starts = start_tokens(denoiser, config.prompt, _length(config, denoiser), 1)
    sampler = Sampler(
        denoiser=denoiser, rule=rule, steps=config.steps_for(starts.shape[1]), feedback=None, filter=filter_
    )
    arms = []
    with Progress("sampling", unit="arms", total=len(operators)) as progress:
        for name in operators:
            fed = replace(sampler, feedback=find_feedback(denoiser, name))
            (samples,) = in_batches(fed, starts, [0], config.seed, 1, cast("Precision", config.precision), trace=True)
            arms.append(_as_data(name, fed, samples))
            progress.advance(1)
    return ArmTraces(
        arms=arms,
        pieces=token_bytes(tokenizer, _occurring(arms) - {denoiser.mask_id}),
        mask_id=denoiser.mask_id,
        band=sampler.band,
        length=starts.shape[1],
    )


def _as_data(name: str, sampler: Sampler, samples: Samples) -> ArmTrace:
    assert samples.texts is not None
    assert samples.traces is not None
    return ArmTrace(
        operator=name,
        text=samples.texts[0],
        calls=int(samples.calls[0]),
        trace=samples.traces[0].to_json(),
        confidence=None if sampler.feedback is None else sampler.feedback.confidence.extra_repr(),
    )


def _length(config: SampleConfig, denoiser: Denoiser) -> int:
    """That of a text with holes; otherwise 128, or twice the prompt where that is more, as far as the model goes."""
    if config.length is not None:
        return config.length
    ids = prompt_ids(denoiser, config.prompt)
    most = denoiser.max_length
    if most is not None and len(ids) > most:
        raise ArcmaskError(f"the prompt has {len(ids)} tokens, but the model takes at most {most} positions")
    if denoiser.mask_id in ids:
        return len(ids)
    wanted = max(_LENGTH, 2 * len(ids))
    return wanted if most is None else min(wanted, most)


def _occurring(arms: Sequence[ArmTrace]) -> set[int]:
    """Every id that an arm was given, predicted or wrote."""
    found: set[int] = set()
    for arm in arms:
        found.update(arm.trace["start"], arm.trace["tokens"])
        for step in arm.trace["steps"]:
            found.update(token for _, token in step["revealed"])
            for row in step["masked"]:
                found.update(row[4])
    return found
