"""The likelihood of held-out rows under a denoiser: the bound of `arcmask.objective`, with one pass and with two.

Both see the same noise.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from arcmask.data import PreparedCorpus, open_prepared
from arcmask.errors import ArcmaskError
from arcmask.model import Denoiser
from arcmask.objective import Bound, TwoPass, likelihood_bound
from arcmask.progress import Progress


def likelihood(
    denoiser: Denoiser,
    data: str,
    *,
    rows: int | None = None,
    seed: int = 0,
    batch_size: int = 16,
    split: str = "validation",
) -> dict[str, Any]:
    """Return the bound on a prepared folder that fits the model: nats per token, perplexity and bits per byte.

    The keys are `plain` and, if the denoiser has feedback, `two_pass`. The rows (default: all) are spread evenly over
    the split.
    """
    if rows is not None and rows < 1:
        raise ArcmaskError(f"rows is {rows}, but must be 1 or more")
    corpus = open_prepared(data, split)
    corpus.check_fits(vocab_size=denoiser.table.shape[0], mask_id=denoiser.mask_id, max_length=denoiser.max_length)
    count = len(corpus) if rows is None else min(rows, len(corpus))
    numbers = np.arange(count, dtype=np.int64) * len(corpus) // count
    feedback = getattr(denoiser, "feedback", None)
    operators: dict[str, str | None] = {"plain": None}
    if feedback is not None and feedback.operator != "none":
        operators["two_pass"] = feedback.operator
    objective = TwoPass(denoiser, feedback)
    settings = {"data": data, "split": split, "tokenizer": corpus.index.tokenizer, "seed": seed}
    records = {}
    for name, operator in operators.items():
        fed = operator is not None
        with Progress(f"likelihood, {name}", unit="rows", total=count) as progress:
            batches = _batches(corpus, numbers, batch_size, progress)
            bound = likelihood_bound(objective, batches, feedback=fed, seed=seed)
        records[name] = _record(bound, corpus) | settings | {"batch_size": batch_size, "feedback": operator}
    return records


def _batches(corpus: PreparedCorpus, numbers: Any, batch_size: int, progress: Progress) -> Iterator[Tensor]:
    for start in range(0, len(numbers), batch_size):
        batch = corpus.rows(numbers[start : start + batch_size])
        yield batch
        progress.advance(len(batch))


def _record(bound: Bound, corpus: PreparedCorpus) -> dict[str, Any]:
    bytes_per_token = corpus.record.text_bytes / (corpus.record.tokens + corpus.record.dropped_tokens)
    return {
        "nats": bound.nats,
        "standard_error": None if math.isnan(bound.standard_error) else bound.standard_error,
        "perplexity": bound.perplexity,
        "bits_per_byte": bound.bits_per_byte(bytes_per_token),
        "rows": bound.rows,
        "tokens": bound.tokens,
    }
