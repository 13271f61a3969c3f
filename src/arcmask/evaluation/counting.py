"""Scores that need no evaluator: entropy of tokens, distinct n-grams, repetition, and the share of real words.

Each is a mean over samples, or a ratio of sums over samples, with a bootstrap interval over samples.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from arcmask.evaluation.statistics import bootstrap_interval, bootstrap_ratio
from arcmask.evaluation.texts import ReferenceWords, words_of

_REPEATED = 4  # words in a phrase that counts as repeated


def entropy_score(token_lists: Sequence[Sequence[int]], tokenizer: str, seed: int) -> dict[str, Any]:
    """Return the entropy (nats) of the token frequencies within a sample, averaged over samples that have tokens."""
    values = [_entropy(tokens) for tokens in token_lists if len(tokens)]
    return _mean(values, seed) | {"tokenizer": tokenizer, "tokens": sum(len(tokens) for tokens in token_lists)}


def distinct_score(texts: Sequence[str], n: int, seed: int) -> dict[str, Any]:
    """Return the share of distinct n-grams of words within a sample, averaged; `pooled` takes all samples as one."""
    grams = [_grams(words_of(text), n) for text in texts]
    total = sum(map(len, grams))
    pooled = len(set().union(*grams)) / total if total else None
    return _mean([len(set(g)) / len(g) for g in grams if g], seed) | {"pooled": pooled, "of": f"runs of {n} words"}


def repetition_score(texts: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the share of a sample's 4-grams of words that occurred in it before, averaged over samples with any."""
    grams = [_grams(words_of(text), _REPEATED) for text in texts]
    return _mean([1 - len(set(g)) / len(g) for g in grams if g], seed) | {"of": f"runs of {_REPEATED} words"}


def real_word_score(texts: Sequence[str], reference: ReferenceWords, seed: int) -> dict[str, Any]:
    """Return the share of words that occur in the reference.

    A sample's first and last word are left out, because they may be cut. `by_length` weights each word by its letters.
    """
    inner = [words_of(text)[1:-1] for text in texts]
    real = [[word for word in words if word in reference.words] for words in inner]
    counts, hits = [len(words) for words in inner], [len(words) for words in real]
    letters = sum(len(word) for words in inner for word in words)
    return {
        "value": sum(hits) / sum(counts) if sum(counts) else None,
        "interval": bootstrap_ratio(hits, counts, seed=seed),
        "by_length": sum(len(word) for words in real for word in words) / letters if letters else None,
        "words": sum(counts),
        "samples": len(texts),
        "reference": reference.source,
        "reference_words": len(reference.words),
    }


def _mean(values: list[float], seed: int) -> dict[str, Any]:
    return {
        "value": math.fsum(values) / len(values) if values else None,
        "interval": bootstrap_interval(values, seed=seed),
        "samples": len(values),
    }


def _entropy(tokens: Sequence[int]) -> float:
    shares = [count / len(tokens) for count in Counter(tokens).values()]
    return -math.fsum(share * math.log(share) for share in shares)


def _grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(n)), strict=False))
