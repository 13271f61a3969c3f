"""Generative perplexity: the nats that a causal LM needs for a text, and its tokens, words and bytes.

A text follows one end-of-text token: its own if it begins with one, or else one that is put before it. That token is
not predicted. All others are counted, except end-of-text tokens after the first in the text. With start "none" nothing
is put before a text, and its first token is not predicted.

A text longer than the context is read in windows, each one stride after the last. A token is predicted once, in the
first window that holds it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from arcmask.evaluation.cache import Batch, Cache, Share, through_cache
from arcmask.evaluation.evaluator import END, Evaluator
from arcmask.evaluation.statistics import bootstrap_ratio
from arcmask.settings.evaluate import PerplexitySettings


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
) -> list[TextLoss] | None:
    """Return the loss of each text; the cache keeps it. None in all processes of a share but the first."""
    fitted = settings.fitted(evaluator.max_length)

    def compute(missing: list[str]) -> Iterator[Batch]:
        for batch in _losses(evaluator, missing, fitted, batch_tokens):
            yield [(index, json.dumps(asdict(loss)).encode()) for index, loss in batch]

    store = Cache(cache, "perplexity", evaluator.identity | asdict(fitted))
    values = through_cache(store, texts, compute, share=share or Share(), what="perplexity")
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
    return _Prepared(ids=before + ids, counted=counted, words=words, bytes=size)


def _windows(length: int, settings: PerplexitySettings) -> Iterator[tuple[int, int, int]]:
    """Yield the begin and end of each window over `length` tokens, and the first token that is new in it."""
    assert settings.stride is not None
    begin, fresh = 0, 1
    while fresh < length:
        end = min(begin + settings.context, length)
        yield begin, end, fresh
        begin, fresh = begin + settings.stride, end


def _losses(
    evaluator: Evaluator, texts: list[str], settings: PerplexitySettings, batch_tokens: int | None
) -> Iterator[list[tuple[int, TextLoss]]]:
    """Yield batches of (index, loss); a text comes when all of its windows are done."""
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
        losses = evaluator.losses(rows, counted.to(rows.device)).double().cpu()
        for (index, *_), part in zip(chosen, losses.split(counted.sum(1).tolist()), strict=True):
            nats[index] += float(part.sum())
            waiting[index] -= 1
        done = dict.fromkeys(index for index, *_ in chosen if waiting[index] == 0)
        yield [(index, prepared[index].loss(nats[index])) for index in done]
