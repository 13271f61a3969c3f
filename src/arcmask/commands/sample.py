"""`arcmask sample`: generate text with a checkpoint."""

import json
import sys

from arcmask.checkpoint import load_for_use
from arcmask.errors import printable
from arcmask.sampling.generate import generate
from arcmask.settings.sample import SampleConfig


def run(config: SampleConfig) -> None:
    """Write the samples to `config.out`, or print their texts (their tokens, without a tokenizer)."""
    for records in generate(config, load_for_use):
        for record in records if config.out is None else ():
            text = json.dumps(record["tokens"]) if record["text"] is None else record["text"]
            print(printable(text) if sys.stdout.isatty() else text, flush=True)
