"""The scores of texts: generative perplexity, counts of tokens and words, and MAUVE.

Generative perplexity counts the nats that a causal LM needs for a text. A text follows one end-of-text token: its own
if it begins with one, or else one that is put before it. That token is not predicted. All others are counted, except
end-of-text tokens after the first in the text. With start "none" nothing is put before a text, and its first token is
not predicted. A text longer than the context is read in windows, each one stride after the last. A token is predicted
once, in the first window that holds it.

The counts need no evaluator: entropy of tokens, distinct n-grams, repetition, and the share of real words. Each is a
mean or a ratio of sums over samples, with a bootstrap interval over samples. Where there are training rows to compare
with, two more say whether a model recites: the edits to the nearest row, and the share of distinct samples.

MAUVE measures how similarly samples and real text spread over clusters of a causal LM's features. The features are
computed here, through the cache; mauve-text computes the score. The seed of its clustering alone moves the score by as
much as papers report gains, so several seeds are run.
"""

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arcmask.blocks import send
from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import Batch, Cache, Share, text_key, through_cache
from arcmask.evaluation.evaluator import END, Evaluator
from arcmask.evaluation.nearest import Neighbours
from arcmask.evaluation.statistics import bootstrap_interval, bootstrap_ratio, summarize
from arcmask.evaluation.texts import ReferenceWords, words_of
from arcmask.ranks import own_threads
from arcmask.run_folder import interpreting
from arcmask.settings.evaluate import PerplexitySettings

_REPEATED = 4  # words in a phrase that counts as repeated
LEAST = 20  # with fewer texts mauve-text makes two clusters, which say nothing
INSTALL = "MAUVE needs mauve-text; pip install 'arcmask[eval]' brings it"


@dataclass(frozen=True)
class TextLoss:
    """The loss of one text: nats of its counted tokens, their number, and the words and bytes they stand for."""

    nats: float
    tokens: int
    words: int
    bytes: int


@dataclass(frozen=True)
class _Prepared:
    """The tokens of a text with what precedes them, which of them count, and the text that these stand for."""

    ids: list[int]
    counted: list[bool]
    words: int
    bytes: int
    has_prefix: bool  # whether a token was put before the text

    def loss(self, nats: float) -> TextLoss:
        return TextLoss(nats=nats, tokens=sum(self.counted), words=self.words, bytes=self.bytes)


def text_losses(
    evaluator: Evaluator,
    texts: Sequence[str],
    settings: PerplexitySettings,
    *,
    cache: Path | None,
    share: Share | None = None,
    batch_tokens: int | None = None,
    keep_features: bool = False,
) -> list[TextLoss] | None:
    """Return the loss of each text; the cache keeps it. None in all processes of a share but the first.

    With `keep_features` the cache keeps the features of these texts too, for `text_features`, if the same pass gives
    them: nothing may be put before a text, and the model must have a plain head.
    """
    fitted = settings.fitted(evaluator.max_length)
    evaluator.check(fitted)
    features = _features_cache(cache, evaluator, fitted.context) if keep_features and evaluator.has_plain_head else None

    def compute(missing: list[str]) -> Iterator[Batch]:
        for batch in _losses(evaluator, missing, fitted, batch_tokens, features):
            yield [(index, json.dumps(asdict(loss)).encode()) for index, loss in batch]

    store = Cache(cache, "perplexity", evaluator.identity | asdict(fitted))
    values = through_cache(store, texts, compute, share=share or Share(), what="perplexity")
    with interpreting(store.path or Path("memory"), "the losses of texts"):
        return None if values is None else [TextLoss(**json.loads(value)) for value in values]


def perplexity_score(
    evaluator: Evaluator, losses: Sequence[TextLoss], settings: PerplexitySettings, seed: int
) -> dict[str, Any]:
    """Return the perplexity over all texts, exp(nats / tokens), and the same per word and in bits per byte."""
    nats, tokens = [loss.nats for loss in losses], [loss.tokens for loss in losses]
    words, size = sum(loss.words for loss in losses), sum(loss.bytes for loss in losses)
    total, fitted = sum(nats), settings.fitted(evaluator.max_length)
    interval = bootstrap_ratio(nats, tokens, seed=seed)
    start_id = evaluator.start_id if fitted.start == "end-of-text" else None
    return {
        "value": _exp(total / sum(tokens)) if sum(tokens) else None,
        "interval": None if interval is None else [_exp(edge) for edge in interval],
        "per_word": _exp(total / words) if words else None,
        "bits_per_byte": total / math.log(2) / size if size else None,
        "tokens": sum(tokens),
        "words": words,
        "bytes": size,
        "samples": len(losses),
        **evaluator.identity,
        "context": fitted.context,
        "stride": fitted.stride,
        "start": None if start_id is None else evaluator.tokenizer.convert_ids_to_tokens(start_id),
    }


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


def _prepare(evaluator: Evaluator, text: str, ids: list[int], settings: PerplexitySettings) -> _Prepared:
    start_id = evaluator.start_id if settings.start == "end-of-text" else None
    before = [] if start_id is None or ids[:1] == [start_id] else [start_id]
    if not before and ids and ids[0] != evaluator.end_id:
        # The first token is not predicted, so its text is not counted either.
        first = evaluator.tokenizer.decode(ids[:1])
        text = text[len(first) if text.startswith(first) else 1 :]
    ends = [index for index, token in enumerate(ids) if token == evaluator.end_id]
    repeated = set(ends[1:])
    counted = [False] * len(before) + [index not in repeated for index in range(len(ids))]
    counted[:1] = [False] * len(counted[:1])  # nothing precedes it
    words, size = len(text.replace(END, " ").split()), len(text.replace(END, "").encode("utf-8", "surrogatepass"))
    return _Prepared(ids=before + ids, counted=counted, words=words, bytes=size, has_prefix=bool(before))


def _windows(length: int, settings: PerplexitySettings) -> Iterator[tuple[int, int, int]]:
    """Yield the begin and end of each window over `length` tokens, and the first token that is new in it."""
    assert settings.stride is not None
    begin, fresh = 0, 1
    while fresh < length:
        end = min(begin + settings.context, length)
        yield begin, end, fresh
        begin, fresh = begin + settings.stride, end


def _losses(
    evaluator: Evaluator,
    texts: list[str],
    settings: PerplexitySettings,
    batch_tokens: int | None,
    features: Cache | None,
) -> Iterator[list[tuple[int, TextLoss]]]:
    """Yield batches of (index, loss); a text comes when all of its windows are done.

    The features of a text without a prefix are the last hidden state of its first window. `features` keeps them.
    """
    encoded = zip(texts, evaluator.encode(texts), strict=True)
    prepared = [_prepare(evaluator, text, ids, settings) for text, ids in encoded]
    windows = [(index, *window) for index, item in enumerate(prepared) for window in _windows(len(item.ids), settings)]
    waiting = Counter(index for index, *_ in windows)
    nats = [0.0] * len(texts)
    yield [(index, item.loss(0.0)) for index, item in enumerate(prepared) if index not in waiting]
    for batch in evaluator.batches([end - begin for _, begin, end, _ in windows], batch_tokens):
        chosen = [windows[number] for number in batch]
        rows = evaluator.pad([prepared[index].ids[begin:end] for index, begin, end, _ in chosen])
        counted = torch.zeros(rows.shape, dtype=torch.bool)
        for row, (index, begin, end, fresh) in enumerate(chosen):
            counted[row, fresh - begin : end - begin] = torch.tensor(prepared[index].counted[fresh:end])
        hidden = None if features is None else evaluator.hidden(rows)
        if features is not None and hidden is not None:
            bare = [row for row, (index, begin, *_) in enumerate(chosen) if not (begin or prepared[index].has_prefix)]
            ends, owners = [chosen[row][2] for row in bare], [texts[chosen[row][0]] for row in bare]
            features.add(dict(zip(map(text_key, owners), _last_states(hidden[bare], ends), strict=True)))
        losses = evaluator.losses(rows, send(counted, rows.device), hidden).double().cpu()
        for (index, *_), part in zip(chosen, losses.split(counted.sum(1).tolist()), strict=True):
            nats[index] += float(part.sum())
            waiting[index] -= 1
        done = dict.fromkeys(index for index, *_ in chosen if waiting[index] == 0)
        yield [(index, prepared[index].loss(nats[index])) for index in done]


def entropy_score(token_lists: Sequence[Sequence[int]], tokenizer: str, seed: int) -> dict[str, Any]:
    """Return the entropy (nats) of the token frequencies within a sample, averaged over samples that have tokens."""
    values = [token_entropy(tokens) for tokens in token_lists if len(tokens)]
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
    inner = [inner_words(text) for text in texts]
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


def nearest_scores(texts: Sequence[str], neighbours: Neighbours, seed: int) -> dict[str, dict[str, Any]]:
    """Return the edits from a sample to the nearest training row, averaged, and the share of distinct samples."""
    edits = [float(neighbours.distance(tokens)) for tokens in neighbours.encode(texts)]
    return {
        "distinct_samples": {"value": len(set(texts)) / len(texts), "interval": None, "samples": len(texts)},
        "nearest": _mean(edits, seed) | {"data": neighbours.source, "rows": len(neighbours)},
    }


def inner_words(text: str) -> list[str]:
    """Return the words of a sample without the first and the last, which may be cut."""
    return words_of(text)[1:-1]


def _mean(values: list[float], seed: int) -> dict[str, Any]:
    return {
        "value": math.fsum(values) / len(values) if values else None,
        "interval": bootstrap_interval(values, seed=seed),
        "samples": len(values),
    }


def token_entropy(tokens: Sequence[int]) -> float:
    """Return the entropy (nats) of the token frequencies within one sample."""
    shares = [count / len(tokens) for count in Counter(tokens).values()]
    return -math.fsum(share * math.log(share) for share in shares)


def _grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(n)), strict=False))


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
            hidden = evaluator.hidden(evaluator.pad([rows[index] for index in batch]))
            yield list(zip(batch, _last_states(hidden, [len(rows[index]) for index in batch]), strict=True))

    store = _features_cache(cache, evaluator, context)
    with_tokens = [text for text, ids in zip(texts, evaluator.encode(texts), strict=True) if ids]
    values = through_cache(store, with_tokens, compute, share=share or Share(), what="features")
    if values is None:
        return None
    with interpreting(store.path or Path("memory"), "the features of texts"):
        return np.array([np.frombuffer(value, dtype=np.float32) for value in values], dtype=np.float32)


def _features_cache(folder: Path | None, evaluator: Evaluator, context: int) -> Cache:
    return Cache(folder, "features", evaluator.identity | {"context": context})


def _last_states(hidden: Tensor, lengths: Sequence[int]) -> list[bytes]:
    """Return the last state of each text, as the cache keeps it: hidden (B, L, H), and the lengths of B texts."""
    last = send(torch.tensor(lengths, dtype=torch.long) - 1, hidden.device)
    states = hidden[torch.arange(len(hidden), device=hidden.device), last].float().cpu().numpy()
    return [state.tobytes() for state in states]


@contextmanager
def _quiet_native_code() -> Iterator[None]:
    """Discard what native code writes to standard error: faiss warns if a cluster has fewer than 39 points."""
    if sys.stderr is None:
        yield
        return
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def mauve_scores(
    samples: NDArray[np.float32],
    references: NDArray[np.float32],
    evaluator: Evaluator,
    settings: PerplexitySettings,
    seed: int | None,
    kmeans_seeds: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Return MAUVE of features (N, H) by name: `mauve` with one seed of the clustering, and `mauve_over_seeds`.

    Without `seed`, `mauve` is the mean over `kmeans_seeds`, and there is no other. All other settings are the defaults
    of mauve-text.
    """
    try:
        import mauve
        from threadpoolctl import threadpool_limits  # comes with mauve-text, through scikit-learn
    except ImportError as error:
        raise ArcmaskError(INSTALL) from error
    if min(len(samples), len(references)) < LEAST:
        raise ArcmaskError(
            f"MAUVE needs {LEAST} texts on each side, but there are {len(samples)} samples and "
            f"{len(references)} reference texts"
        )
    numbers = dict.fromkeys([*([] if seed is None else [seed]), *kmeans_seeds])
    with threadpool_limits(own_threads()), _quiet_native_code():
        results = {
            number: mauve.compute_mauve(p_features=references, q_features=samples, seed=number, verbose=False)
            for number in numbers
        }

    def score(seeds: Sequence[int]) -> dict[str, Any]:
        summary = summarize([float(results[number].mauve) for number in seeds])
        return {
            "value": summary.mean,
            "interval": None,
            "std_over_seeds": summary.std,
            "half_width_over_seeds": summary.half_width,
            "kmeans_seeds": list(seeds),
            "buckets": int(results[seeds[0]].num_buckets),
            "features": evaluator.name,
            "features_sha256": evaluator.sha256,
            "precision": evaluator.precision,
            "context": settings.fitted(evaluator.max_length).context,
            "samples": len(samples),
            "references": len(references),
        }

    if seed is None:
        return {"mauve": score(kmeans_seeds)}
    return {"mauve": score([seed]), "mauve_over_seeds": score(kmeans_seeds)}
