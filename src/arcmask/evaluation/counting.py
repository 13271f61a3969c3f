"""Scores that need no evaluator: entropy of tokens, distinct n-grams, repetition, and the share of real words.

Each is an average over samples of something within a sample, or a ratio of sums over samples, with a bootstrap
interval over samples. Knows tokens and words, no model.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from arcmask.evaluation.statistics import bootstrap_interval, bootstrap_ratio
from arcmask.evaluation.texts import ReferenceWords, words_of

_REPEATED = 4  # words in a phrase that counts as repeated


def entropy_score(token_lists: Sequence[Sequence[int]], tokenizer: str, seed: int) -> dict[str, Any]:
    """Nats of the token frequencies within a sample, averaged over the samples that have tokens."""
    values = [_entropy(tokens) for tokens in token_lists if len(tokens)]
    return _mean(values, seed) | {"tokenizer": tokenizer, "tokens": sum(len(tokens) for tokens in token_lists)}


def distinct_score(texts: Sequence[str], n: int, seed: int) -> dict[str, Any]:
    """The share of different ones among a sample's runs of n words, averaged; `pooled`: among those of all samples."""
    grams = [_grams(words_of(text), n) for text in texts]
    everything = sum(map(len, grams))
    pooled = len(set().union(*grams)) / everything if everything else None
    return _mean([len(set(g)) / len(g) for g in grams if g], seed) | {"pooled": pooled, "of": f"runs of {n} words"}


def repetition_score(texts: Sequence[str], seed: int) -> dict[str, Any]:
    """The share of a sample's runs of four words that stood in it before, averaged over samples that have any."""
    grams = [_grams(words_of(text), _REPEATED) for text in texts]
    return _mean([1 - len(set(g)) / len(g) for g in grams if g], seed) | {"of": f"runs of {_REPEATED} words"}


def real_word_score(texts: Sequence[str], reference: ReferenceWords, seed: int) -> dict[str, Any]:
    """The share of words that the reference has; a sample's first and last word are left out, for they may be cut."""
    inner = [words_of(text)[1:-1] for text in texts]
    real = [[word for word in words if word in reference.words] for words in inner]
    counts, hits = [len(words) for words in inner], [len(words) for words in real]
    letters = sum(len(word) for words in inner for word in words)
    interval = bootstrap_ratio(hits, counts, seed=seed)
    return {
        "value": sum(hits) / sum(counts) if sum(counts) else None,
        "interval": None if interval is None else list(interval),
        "by_length": sum(len(word) for words in real for word in words) / letters if letters else None,
        "words": sum(counts),
        "samples": len(texts),
        "reference": reference.source,
        "reference_words": len(reference.words),
    }


def _mean(values: list[float], seed: int) -> dict[str, Any]:
    interval = bootstrap_interval(values, seed=seed)
    return {
        "value": math.fsum(values) / len(values) if values else None,
        "interval": None if interval is None else list(interval),
        "samples": len(values),
    }


def _entropy(tokens: Sequence[int]) -> float:
    shares = [count / len(tokens) for count in Counter(tokens).values()]
    return -math.fsum(share * math.log(share) for share in shares)


def _grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(n)), strict=False))
