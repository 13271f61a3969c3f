"""The prompts of a seed: held-out rows, of which both ends are given and what is between them is to be sampled."""

from typing import Any

import numpy as np

from arcmask.data import PreparedCorpus
from arcmask.data.prepared import shuffled
from arcmask.errors import ArcmaskError
from arcmask.sampling.prompts import HOLE
from arcmask.settings.experiment import Generation


def held_out_prompts(corpus: PreparedCorpus, generation: Generation, seed: int) -> list[dict[str, Any]]:
    """Return the prompt of each sample, as a line of a file of prompts. More samples do not change those before them.

    The ends do not count [CLS] and [SEP], which are always given.
    """
    assert generation.ends is not None
    order = np.arange(-(-generation.samples // generation.fills))
    rows = corpus.rows(shuffled(order % len(corpus), len(corpus), seed, order // len(corpus))).tolist()
    tokenizer, ends = corpus.tokenizer(), list(generation.ends)
    around = tokenizer.enclosing or ()
    prompts = []
    for row in rows:
        before, after = int(row[0] in around), int(row[-1] in around)
        hole = len(row) - sum(ends) - before - after
        if hole < 1:
            count = len(row) - before - after
            raise ArcmaskError(f"ends is {ends}, but a held-out row of {corpus.source} has {count} tokens in all")
        first, last = row[: before + ends[0]], row[before + ends[0] + hole :]
        text = tokenizer.decode_row(first) + HOLE * hole + tokenizer.decode_row(last)
        prompts.append({"text": text, "tokens": [*first, *[corpus.mask_id] * hole, *last]})
    return [prompt for prompt in prompts for _ in range(generation.fills)][: generation.samples]
