"""All scores of one set of samples, as one record. Whoever calls it opens the evaluators once and passes them in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arcmask.data import Tokenizer
from arcmask.downloads import cache_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation.counting import distinct_score, entropy_score, real_word_score, repetition_score
from arcmask.evaluation.evaluator import Evaluator
from arcmask.evaluation.mauve import mauve_score, text_features
from arcmask.evaluation.perplexity import perplexity_score, text_losses
from arcmask.evaluation.texts import ReferenceWords, texts_hash
from arcmask.settings.evaluate import PerplexitySettings

_DEFAULT = PerplexitySettings()


def evaluate_set(
    texts: Sequence[str],
    *,
    token_lists: Sequence[Sequence[int]] | None = None,
    tokenizer: Tokenizer | str | None = None,
    reference_words: ReferenceWords | None = None,
    evaluator: Evaluator | None = None,
    features: Evaluator | None = None,
    mauve_reference: Sequence[str] | None = None,
    perplexity: PerplexitySettings = _DEFAULT,
    kmeans_seeds: Sequence[int] = (25, 26, 27),
    seed: int = 0,
    cache: Path | None = None,
    batch_tokens: int | None = None,
    source: str = "",
) -> dict[str, Any]:
    """`count`, `source`, `sha256` and `scores` of a set; a score whose means were not given is absent.

    Entropy counts `token_lists`, if given, and names them by `tokenizer`; else the tokens that `tokenizer` makes.
    Perplexity is the `evaluator`'s. MAUVE compares the samples with `mauve_reference` by the features of `features`, or
    of the evaluator. `cache` is a folder, by default `cache_folder()`: a text is scored once by each evaluator.
    """
    if not texts:
        raise ArcmaskError("there are no samples to score")
    if token_lists is not None and len(token_lists) != len(texts):
        raise ArcmaskError(f"there are {len(texts)} texts, but {len(token_lists)} lists of tokens")
    folder = cache_folder() if cache is None else cache
    scores: dict[str, Any] = {}
    if evaluator is not None:
        losses = text_losses(evaluator, texts, perplexity, cache=folder, batch_tokens=batch_tokens)
        assert losses is not None
        scores["generative_perplexity"] = perplexity_score(evaluator, losses, perplexity, seed)
    name = tokenizer.name if isinstance(tokenizer, Tokenizer) else tokenizer
    if token_lists is None and isinstance(tokenizer, Tokenizer):
        token_lists = tokenizer.encode_batch(texts)
    if token_lists is not None:
        scores["entropy"] = entropy_score(token_lists, name or "the samples' own", seed)
    for n in (1, 2, 3):
        scores[f"distinct_{n}"] = distinct_score(texts, n, seed)
    scores["repetition"] = repetition_score(texts, seed)
    if reference_words is not None:
        scores["real_word_rate"] = real_word_score(texts, reference_words, seed)
    model = features or evaluator
    if mauve_reference is not None:
        if model is None:
            raise ArcmaskError("MAUVE needs a causal LM for its features; give features or evaluator")
        sides = [
            text_features(model, side, perplexity, cache=folder, batch_tokens=batch_tokens)
            for side in (texts, mauve_reference)
        ]
        assert sides[0] is not None
        assert sides[1] is not None
        scores["mauve"] = mauve_score(sides[0], sides[1], model, perplexity, kmeans_seeds)
    return {"count": len(texts), "source": source, "sha256": texts_hash(list(texts)), "scores": scores}
