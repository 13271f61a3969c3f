"""The likelihood of held-out rows under a denoiser: the bound of `objective`, with one pass and with two.

Knows prepared folders and denoisers; the bound itself lives in `arcmask.objective`. Both kinds see the same noise.
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
    """`plain`, and `two_pass` if the denoiser has feedback: nats a token, perplexity and bits per byte, on `rows` rows.

    The rows are spread evenly over the split (by default all of them). Any prepared folder will do that fits the model.
    """
    if rows is not None and rows < 1:
        raise ArcmaskError(f"rows is {rows}, but must be 1 or more")
    corpus = open_prepared(data, split)
    corpus.check_fits(vocab_size=denoiser.table.shape[0], mask_id=denoiser.mask_id, max_length=denoiser.max_length)
    count = len(corpus) if rows is None else min(rows, len(corpus))
    chosen = np.arange(count, dtype=np.int64) * len(corpus) // count
    feedback = getattr(denoiser, "feedback", None)
    feeds = feedback is not None and feedback.operator != "none"
    objective = TwoPass(denoiser, feedback)
    found: dict[str, Any] = {}
    for name, fed in (("plain", False), ("two_pass", True)):
        if fed and not feeds:
            continue
        with Progress(f"likelihood, {name}", unit="rows", total=count) as progress:
            bound = likelihood_bound(objective, _batches(corpus, chosen, batch_size, progress), feedback=fed, seed=seed)
        settings = {"data": data, "split": split, "tokenizer": corpus.index.tokenizer, "seed": seed}
        settings |= {"batch_size": batch_size, "feedback": getattr(feedback, "operator", None) if fed else None}
        found[name] = _record(bound, corpus) | settings
    return found


def _batches(corpus: PreparedCorpus, chosen: Any, batch_size: int, progress: Progress) -> Iterator[Tensor]:
    for start in range(0, len(chosen), batch_size):
        batch = corpus.rows(chosen[start : start + batch_size])
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
