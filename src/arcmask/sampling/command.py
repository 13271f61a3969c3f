"""`arcmask sample`: samples into a file that grows a line at a time, over any number of starts and processes.

A line is written whole, under a lock; what a kill left of one is cut off at the next start. Lines that are there are
not sampled again.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from arcmask.errors import ArcmaskError
from arcmask.model import Denoiser, Precision
from arcmask.sampling.config import SampleConfig
from arcmask.sampling.filters import Filter
from arcmask.sampling.generate import Samples, checked_steps, find_feedback, in_batches, start_tokens
from arcmask.sampling.loop import Sampler
from arcmask.sampling.rules import find_rule


def run(config: SampleConfig, load: Callable[[str], Denoiser]) -> None:
    """Sample what is missing; print each text, or write it to the file. `load` opens the checkpoint."""
    # All that can be wrong with the settings alone is said before a model is opened.
    rule, filter_ = (
        find_rule(config.rule),
        Filter(temperature=config.temperature, top_p=config.top_p, top_k=config.top_k),
    )
    out = None if config.out is None else _usable(Path(config.out))
    denoiser = load(config.checkpoint)
    starts = start_tokens(denoiser, config.prompt, config.length, config.num)
    steps = checked_steps(config.steps_for(starts.shape[1]))
    feedback = find_feedback(denoiser, "trained" if config.feedback is None else config.feedback)
    sampler = Sampler(denoiser=denoiser, rule=rule, steps=steps, feedback=feedback, filter=filter_)
    settings = _settings(config, sampler, starts.shape[1])
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    done = set() if out is None else _done(out, settings)
    missing = [index for index in range(config.num) if index not in done and index % world == rank]
    size = config.batch_size
    for begin in range(0, len(missing), size):
        chosen = missing[begin : begin + size]
        precision = cast("Precision", config.precision)
        for samples in in_batches(sampler, starts, chosen, config.seed, size, precision):
            _write(out, chosen, samples, settings)


def _settings(config: SampleConfig, sampler: Sampler, length: int) -> dict[str, Any]:
    """What a line's text depends on, apart from its index."""
    feedback = sampler.feedback
    return {
        "checkpoint": config.checkpoint,
        "seed": config.seed,
        "steps": sampler.steps,
        "length": length,
        "rule": config.rule,
        "feedback": "none" if feedback is None else feedback.operator,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "prompt": config.prompt,
    }


def _usable(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("ab").close()
    except OSError as error:
        raise ArcmaskError(f"cannot write to {out}: {error.strerror}") from error
    return out


@contextmanager
def _locked(out: Path) -> Iterator[int]:
    handle = os.open(out, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _done(out: Path, settings: dict[str, Any]) -> set[int]:
    """The indices that the file has already; a line that was not finished is cut off, another run's is an error."""
    with _locked(out) as handle:
        content = out.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(handle, whole)
    done = set()
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        try:
            record = json.loads(line)
            index = int(record["index"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArcmaskError(f"{out}, line {number}, is not a sample of ours; give another file") from error
        differing = [key for key, value in settings.items() if record.get(key) != value]
        if differing:
            key = differing[0]
            raise ArcmaskError(
                f"{out} holds samples with {key} {record.get(key)!r}, but now {key} is {settings[key]!r}; "
                "give another file"
            )
        done.add(index)
    return done


def _write(out: Path | None, indices: list[int], samples: Samples, settings: dict[str, Any]) -> None:
    lines = []
    for place, index in enumerate(indices):
        text = None if samples.texts is None else samples.texts[place]
        tokens = samples.tokens[place].tolist()
        if out is None:
            print(json.dumps(tokens) if text is None else text, flush=True)
            continue
        record = {"index": index, "text": text, "tokens": tokens, "calls": int(samples.calls[place]), **settings}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    if out is not None:
        with _locked(out) as handle:
            content = "".join(lines).encode()
            if os.write(handle, content) != len(content):
                raise ArcmaskError(f"{out} could not be written: the disk is full")
