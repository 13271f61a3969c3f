"""`arcmask sample`: generate text with a checkpoint."""

import json
import shlex
import sys
import time

from arcmask.checkpoint import load_for_use
from arcmask.data.tokenizers import RESIDUES
from arcmask.errors import printable
from arcmask.evaluation.sapiens import NAME as SAPIENS
from arcmask.model import Model
from arcmask.ranks import rank, world_size
from arcmask.sampling.generate import generate
from arcmask.settings.sample import SampleConfig


def run(config: SampleConfig) -> None:
    """Write the samples to `config.out` and say so, or print their texts (their tokens, without a tokenizer)."""
    drawn, began, scorer = 0, 0.0, []

    def load(checkpoint: str) -> Model:
        nonlocal began, scorer
        denoiser = load_for_use(checkpoint)
        if getattr(denoiser.tokenizer, "symbols", None) == RESIDUES:
            scorer = ["--evaluator", SAPIENS]
        began = time.monotonic()
        return denoiser

    for records in generate(config, load):
        drawn += len(records)
        for record in records if config.out is None else ():
            text = json.dumps(record["tokens"]) if record["text"] is None else record["text"]
            print(printable(text) if sys.stdout.isatty() else text, flush=True)
    if config.out is not None and rank() == 0:
        print(_summary(config, config.out, drawn, time.monotonic() - began))
        print(f"next: {shlex.join(['arcmask', 'evaluate', config.out, *scorer])}")


def most_processes(config: SampleConfig, most: int) -> tuple[int, str]:
    """Return how many of `most` processes have something to draw, and why it is not more."""
    if config.out is None:
        return 1, "the texts are printed; give --out FILE to share them"
    return max(1, min(most, config.num)), f"there {'is 1 sample' if config.num == 1 else f'are {config.num} samples'}"


def _summary(config: SampleConfig, out: str, drawn: int, seconds: float) -> str:
    """Say how many samples this process drew, how fast, and how many of its share were in the file before."""
    before = len(range(rank(), config.num, world_size())) - drawn
    processes = "" if world_size() == 1 else f" by this process, one of {world_size()}"
    rate = f" ({drawn / seconds:.3g} per second)" if drawn and seconds > 0 else ""
    kept = f"; {before} {'was' if before == 1 else 'were'} there" if before else ""
    samples = f"{drawn} sample{'' if drawn == 1 else 's'}"
    return f"{out}: {samples} of {config.checkpoint} drawn{processes} in {seconds:.1f} s{rate}{kept}"
