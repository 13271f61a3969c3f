"""Generative perplexity: the nats that a causal LM needs for a text, and how many tokens, words and bytes that was.

A text's tokens follow one end-of-text token: its own, if it begins with one, or else one that is put before it. That
token is given, not predicted. Counted are all others, except end-of-text ones after the first in the text. With start
"none" nothing is put before a text, and its first token is given.

A text longer than the context is read in windows, each a stride behind the one before. A token is predicted once, in
the first window that holds it, with at least context - stride tokens before it if the text has so many.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from arcmask.evaluation.cache import Batch, Cache, Share, through_cache
from arcmask.evaluation.evaluator import END, Evaluator, in_batches
from arcmask.evaluation.statistics import bootstrap_ratio
from arcmask.settings.evaluate import PerplexitySettings


@dataclass(frozen=True)
class TextLoss:
    """One text: nats of its counted tokens, their number, and the words and bytes of text that they stand for."""

    nats: float
    tokens: int
    words: int
    bytes: int


@dataclass(frozen=True)
class _Prepared:
    """A text's tokens with what is put before them, which of them count, and the text that these stand for."""

    ids: list[int]
    counted: list[bool]
    words: int
    bytes: int


def text_losses(
    evaluator: Evaluator,
    texts: Sequence[str],
    settings: PerplexitySettings,
    *,
    cache: Path | None,
    share: Share | None = None,
    batch_tokens: int | None = None,
) -> list[TextLoss] | None:
    """The loss of each text, each computed once ever. None for all processes of a share but the first."""
    fitted = settings.fitted(evaluator.max_length)

    def compute(missing: list[str]) -> Iterator[Batch]:
        for batch in _losses(evaluator, missing, fitted, batch_tokens):
            yield [(place, json.dumps(asdict(loss)).encode()) for place, loss in batch]

    kept = Cache(cache, "perplexity", evaluator.identity | asdict(fitted))
    found = through_cache(kept, texts, compute, share=share or Share(), what="perplexity")
    return None if found is None else [TextLoss(**json.loads(value)) for value in found]


def perplexity_score(
    evaluator: Evaluator, losses: Sequence[TextLoss], settings: PerplexitySettings, seed: int
) -> dict[str, Any]:
    """Over all texts: exp of all nats by all tokens, the same by words, and bits by bytes."""
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
    plain = text
    if start_id is not None and ids[:1] != [start_id]:
        before = [start_id]
    else:
        before = []
        if ids and ids[0] != evaluator.end_id:
            # The first token is given, so what it stands for is not counted either.
            given = evaluator.tokenizer.decode(ids[:1])
            plain = text[len(given) if text.startswith(given) else 1 :]
    seen, counted = False, [False] * len(before)
    for token in ids:
        counted.append(token != evaluator.end_id or not seen)
        seen = seen or token == evaluator.end_id
    counted[:1] = [False] * min(1, len(counted))  # nothing comes before it
    words, size = len(plain.replace(END, " ").split()), len(plain.replace(END, "").encode("utf-8", "surrogatepass"))
    return _Prepared(ids=before + ids, counted=counted, words=words, bytes=size)


def _windows(length: int, settings: PerplexitySettings) -> Iterator[tuple[int, int, int]]:
    """Where each window of so many tokens begins and ends, and the first token in it that no other has predicted."""
    assert settings.stride is not None
    begin, fresh = 0, 1
    while fresh < length:
        end = min(begin + settings.context, length)
        yield begin, end, fresh
        begin, fresh = begin + settings.stride, end


def _losses(
    evaluator: Evaluator, texts: list[str], settings: PerplexitySettings, batch_tokens: int | None
) -> Iterator[list[tuple[int, TextLoss]]]:
    """Batches of (place, loss), as they come; a text comes when all of its windows are done."""
    prepared = [
        _prepare(evaluator, text, ids, settings) for text, ids in zip(texts, evaluator.encode(texts), strict=True)
    ]
    windows = [(place, *w) for place, item in enumerate(prepared) for w in _windows(len(item.ids), settings)]
    waiting = [0] * len(texts)
    for place, *_ in windows:
        waiting[place] += 1
    nats = [0.0] * len(texts)
    done = [place for place, count in enumerate(waiting) if count == 0]
    if done:
        yield [(place, _finished(prepared[place], 0.0)) for place in done]
    for batch in in_batches(evaluator, [end - begin for _, begin, end, _ in windows], batch_tokens):
        chosen = [windows[number] for number in batch]
        rows = evaluator.pad([prepared[place].ids[begin:end] for place, begin, end, _ in chosen])
        wanted = torch.zeros(rows.shape, dtype=torch.bool)
        for row, (place, begin, end, fresh) in enumerate(chosen):
            wanted[row, fresh - begin : end - begin] = torch.tensor(prepared[place].counted[fresh:end])
        losses = evaluator.losses(rows, wanted.to(rows.device)).double().cpu()
        for (place, *_), part in zip(chosen, losses.split(wanted.sum(1).tolist()), strict=True):
            nats[place] += float(part.sum())
            waiting[place] -= 1
        done = [place for place in dict.fromkeys(place for place, *_ in chosen) if waiting[place] == 0]
        yield [(place, _finished(prepared[place], nats[place])) for place in done]


def _finished(item: _Prepared, nats: float) -> TextLoss:
    return TextLoss(nats=nats, tokens=sum(item.counted), words=item.words, bytes=item.bytes)
