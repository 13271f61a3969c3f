"""MAUVE: how similarly samples and real text spread over clusters of a causal LM's features.

The features are computed here, in batches and through the cache; mauve-text computes the score. The seed of its
clustering alone moves the score by as much as papers report gains, so several seeds are run.
"""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import Batch, Cache, Share, through_cache
from arcmask.evaluation.evaluator import Evaluator
from arcmask.settings.evaluate import PerplexitySettings

LEAST = 20  # with fewer texts mauve-text makes two clusters, which say nothing
INSTALL = "MAUVE needs mauve-text; pip install 'arcmask[eval]' brings it"


def has_mauve() -> bool:
    """Return whether mauve-text is installed."""
    return find_spec("mauve") is not None


def text_features(
    evaluator: Evaluator,
    texts: Sequence[str],
    settings: PerplexitySettings,
    *,
    cache: Path | None,
    share: Share | None = None,
    batch_tokens: int | None = None,
) -> NDArray[np.float32] | None:
    """Return the last hidden state of each text's last token within the context: (N, H).

    Texts without a token have no features and are left out, as in mauve-text. None in all processes but the first.
    """
    context = settings.fitted(evaluator.max_length).context

    def compute(missing: list[str]) -> Iterator[Batch]:
        rows = [ids[:context] for ids in evaluator.encode(missing)]
        for batch in evaluator.batches([len(row) for row in rows], batch_tokens):
            lengths = torch.tensor([len(rows[index]) for index in batch])
            hidden = evaluator.hidden(evaluator.pad([rows[index] for index in batch]))
            last = hidden[torch.arange(len(batch)), lengths - 1].float().cpu().numpy()
            yield [(index, last[row].tobytes()) for row, index in enumerate(batch)]

    store = Cache(cache, "features", evaluator.identity | {"context": context})
    with_tokens = [text for text, ids in zip(texts, evaluator.encode(texts), strict=True) if ids]
    values = through_cache(store, with_tokens, compute, share=share or Share(), what="features")
    if values is None:
        return None
    return np.array([np.frombuffer(value, dtype=np.float32) for value in values], dtype=np.float32)


def mauve_score(
    samples: NDArray[np.float32],
    references: NDArray[np.float32],
    evaluator: Evaluator,
    settings: PerplexitySettings,
    kmeans_seeds: Sequence[int],
) -> dict[str, Any]:
    """Return the mean of MAUVE over seeds of the clustering, and its spread; features are (N, H).

    All other settings are the defaults of mauve-text.
    """
    try:
        import mauve
    except ImportError as error:
        raise ArcmaskError(INSTALL) from error
    if min(len(samples), len(references)) < LEAST:
        raise ArcmaskError(
            f"MAUVE needs {LEAST} texts on each side, but there are {len(samples)} samples and "
            f"{len(references)} reference texts"
        )
    results = [
        mauve.compute_mauve(p_features=references, q_features=samples, seed=seed, verbose=False)
        for seed in kmeans_seeds
    ]
    values = [float(result.mauve) for result in results]
    return {
        "value": math.fsum(values) / len(values),
        "interval": None,
        "std_over_seeds": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "kmeans_seeds": list(kmeans_seeds),
        "buckets": int(results[-1].num_buckets),
        "features": evaluator.name,
        "features_sha256": evaluator.sha256,
        "precision": evaluator.precision,
        "context": settings.fitted(evaluator.max_length).context,
        "samples": len(samples),
        "references": len(references),
    }
