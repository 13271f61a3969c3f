"""`arcmask sample`: samples into a file that grows a line at a time, over any number of starts and processes.

A line is written whole, under a lock; what a kill left of one is cut off at the next start. Lines that are there are
not sampled again.
"""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch

from arcmask.errors import ArcmaskError
from arcmask.files import writable
from arcmask.model import Denoiser, Precision, has_fast_bfloat16
from arcmask.progress import Progress
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
        Filter(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            drop_crossing=config.drop_crossing,
        ),
    )
    out = None if config.out is None else writable(Path(config.out))
    denoiser = load(config.checkpoint)
    starts = start_tokens(denoiser, config.prompt, config.length, config.num)
    steps = checked_steps(config.steps_for(starts.shape[1]))
    feedback = find_feedback(denoiser, "trained" if config.feedback is None else config.feedback)
    sampler = Sampler(denoiser=denoiser, rule=rule, steps=steps, feedback=feedback, filter=filter_)
    settings = _settings(config, sampler, starts.shape[1])
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    file = None if out is None else SampleFile(out, settings)
    mine = [i for i in range(config.num) if i % world == rank and (file is None or i not in file.done)]
    precision = cast("Precision", config.precision)
    batches = in_batches(sampler, starts, mine, config.seed, config.batch_size, precision)
    with Progress("sampling", unit="samples", total=len(mine)) if file is not None else nullcontext() as progress:
        for begin, samples in zip(range(0, len(mine), config.batch_size), batches, strict=True):
            records = list(_records(mine[begin : begin + config.batch_size], samples, config.checkpoint))
            if file is None or progress is None:
                for record in records:
                    print(json.dumps(record["tokens"]) if record["text"] is None else record["text"], flush=True)
            else:
                file.append(records)
                progress.advance(len(records))


def _records(indices: list[int], samples: Samples, checkpoint: str) -> Iterator[dict[str, Any]]:
    for place, index in enumerate(indices):
        yield {
            "index": index,
            "text": None if samples.texts is None else samples.texts[place],
            "tokens": samples.tokens[place].tolist(),
            "calls": int(samples.calls[place]),
            "checkpoint": checkpoint,
        }


def _settings(config: SampleConfig, sampler: Sampler, length: int) -> dict[str, Any]:
    """What a line's text depends on, apart from its index. The model is known by its weights, not by its path."""
    device = sampler.denoiser.table.device
    fast = config.precision == "bfloat16" or (config.precision == "auto" and has_fast_bfloat16(device))
    feedback = sampler.feedback
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
        "precision": "bfloat16" if fast else "float32",
        "model": _fingerprint(sampler.denoiser),
    }


def _fingerprint(denoiser: Denoiser) -> str:
    """A few hex digits of the embedding table: another model, or the same one further trained, has others."""
    content = denoiser.table.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(content.tobytes()).hexdigest()[:16]


class SampleFile:
    """The file of a run, which other processes may be writing too."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.done: set[int] = set()
        self._read = 0  # bytes that were looked at
        self._line = 0
        if path.exists():
            with self._locked() as handle:
                self._look(handle)

    def append(self, records: list[dict[str, Any]]) -> None:
        """Write those that are not there yet, all at once."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as handle:
                self._look(handle)
                new = [record for record in records if record["index"] not in self.done]
                content = "".join(json.dumps(r | self.settings, ensure_ascii=False) + "\n" for r in new).encode()
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise ArcmaskError(f"{self.path} could not be written: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _look(self, handle: int) -> None:
        """Take in the lines that are new; one that was not finished is cut off, another run's is an error."""
        content = os.pread(handle, os.fstat(handle).st_size - self._read, self._read)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(handle, self._read + whole)
        for line in content[:whole].splitlines():
            self._line += 1
            try:
                record = json.loads(line)
                index = int(record["index"])
            except (ValueError, KeyError, TypeError) as error:
                raise ArcmaskError(
                    f"{self.path}, line {self._line}, is not a sample of ours; give another file"
                ) from error
            for key, value in self.settings.items():
                if record.get(key) != value:
                    raise ArcmaskError(
                        f"{self.path} holds samples with {key} {record.get(key)!r}, but now {key} is {value!r}; "
                        "give another file"
                    )
            self.done.add(index)
        self._read += whole
