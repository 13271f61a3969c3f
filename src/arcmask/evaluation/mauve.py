"""MAUVE: how far samples and real text spread over the same clusters of a causal LM's features.

The features are ours, computed in batches and kept; the score is mauve-text's. Its clustering starts from a seed that
alone moves the score by as much as papers report gains, so that several seeds are run.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import Batch, Cache, Share, through_cache
from arcmask.evaluation.evaluator import Evaluator, in_batches
from arcmask.settings.evaluate import PerplexitySettings

LEAST = 20  # with fewer texts mauve-text has two clusters, which tell nothing
INSTALL = "MAUVE needs mauve-text; pip install 'arcmask[eval]' brings it"


def has_mauve() -> bool:
    """Whether mauve-text is installed."""
    try:
        import mauve  # noqa: F401
    except ImportError:
        return False
    return True


def text_features(
    evaluator: Evaluator,
    texts: Sequence[str],
    settings: PerplexitySettings,
    *,
    cache: Path | None,
    share: Share | None = None,
    batch_tokens: int | None = None,
) -> NDArray[np.float32] | None:
    """The last hidden state of each text's last token within the context, (N, H), for texts that have a token."""
    context = settings.fitted(evaluator.max_length).context

    def compute(missing: list[str]) -> Iterator[Batch]:
        rows = [ids[:context] for ids in evaluator.encode(missing)]
        for batch in in_batches(evaluator, [len(row) for row in rows], batch_tokens):
            lengths = torch.tensor([len(rows[place]) for place in batch])
            hidden = evaluator.hidden(evaluator.pad([rows[place] for place in batch]))
            last = hidden[torch.arange(len(batch)), lengths - 1].float().cpu().numpy()
            yield [(place, last[row].tobytes()) for row, place in enumerate(batch)]

    kept = Cache(cache, "features", evaluator.identity | {"context": context})
    found = through_cache(kept, with_tokens(evaluator, texts), compute, share=share or Share(), what="features")
    if found is None:
        return None
    return np.array([np.frombuffer(value, dtype=np.float32) for value in found], dtype=np.float32)


def with_tokens(evaluator: Evaluator, texts: Sequence[str]) -> list[str]:
    """The texts that have at least one token; the others have no features (mauve-text leaves them out too)."""
    return [text for text, ids in zip(texts, evaluator.encode(texts), strict=True) if ids]


def mauve_score(
    samples: NDArray[np.float32],
    references: NDArray[np.float32],
    evaluator: Evaluator,
    settings: PerplexitySettings,
    kmeans_seeds: Sequence[int],
) -> dict[str, Any]:
    """The mean over the seeds of the clustering, and their spread; all other settings are mauve-text's."""
    try:
        import mauve
    except ImportError as error:
        raise ArcmaskError(INSTALL) from error
    if min(len(samples), len(references)) < LEAST:
        raise ArcmaskError(
            f"MAUVE needs {LEAST} texts on each side, but there are {len(samples)} samples and "
            f"{len(references)} reference texts"
        )
    values = []
    for seed in kmeans_seeds:
        found = mauve.compute_mauve(p_features=references, q_features=samples, seed=seed, verbose=False)
        values.append(float(found.mauve))
    mean = math.fsum(values) / len(values)
    return {
        "value": mean,
        "interval": None,
        "std_over_seeds": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "kmeans_seeds": list(kmeans_seeds),
        "buckets": int(found.num_buckets),
        "features": evaluator.name,
        "features_sha256": evaluator.sha256,
        "precision": evaluator.precision,
        "context": settings.fitted(evaluator.max_length).context,
        "samples": len(samples),
        "references": len(references),
    }
