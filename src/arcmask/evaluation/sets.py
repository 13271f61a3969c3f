"""The scores of sets of samples, and a denoiser's likelihood.

Under torchrun every process scores its share of the texts into the cache, and the first one collects the results.
Settings are checked before a model is loaded.
"""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arcmask.data import Tokenizer, open_tokenizer
from arcmask.data.index import INDEX
from arcmask.downloads import cache_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import Share
from arcmask.evaluation.evaluator import Evaluator
from arcmask.evaluation.held_out import likelihood
from arcmask.evaluation.mauve import INSTALL, LEAST, has_mauve, text_features
from arcmask.evaluation.opening import open_evaluator
from arcmask.evaluation.perplexity import text_losses
from arcmask.evaluation.scores import evaluate_set
from arcmask.evaluation.statistics import summarize
from arcmask.evaluation.texts import Reference, SampleSet, read_samples
from arcmask.feedback import find_operator
from arcmask.model import Denoiser
from arcmask.settings.evaluate import EvaluateConfig


def evaluate(config: EvaluateConfig, load: Callable[[str], Denoiser]) -> dict[str, Any] | None:
    """Score what the settings name; `load` opens the checkpoint. None for all processes but the first."""
    share = Share.of_this_process()
    out = Path(config.out)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ArcmaskError(f"cannot write to {out}: it is a folder, or its folder does not exist")
    if config.data is not None and not (Path(config.data) / INDEX).is_file():
        raise ArcmaskError(f"{config.data!r} is not a prepared corpus: it has no {INDEX}")
    if config.operator is not None:
        find_operator(config.operator)
    result: dict[str, Any] = {"sets": {}, "over_sets": {}}
    if config.samples:
        sets = _evaluate_sets(config, share)
        if share.rank == 0:
            result = {"sets": sets, "over_sets": over_sets(list(sets.values()))}
    if share.rank != 0:
        return None
    if config.checkpoint is not None and config.data is not None:
        bounds = likelihood(load(config.checkpoint), config.data, rows=config.rows, seed=config.seed)
        result["likelihood"] = {"checkpoint": config.checkpoint, **bounds}
    return result


def describe_evaluation(config: EvaluateConfig) -> str:
    """Describe in one sentence what would be scored; reads the samples and opens no model."""
    parts = []
    if config.samples:
        sets = [read_samples(source, skip_bad_lines=config.bad_lines == "skip") for source in config.samples]
        texts = {text for one in sets for text in one.texts}
        model = "no evaluator" if config.evaluator == "none" else f"the evaluator {config.evaluator}"
        parts.append(f"score {len(texts)} different texts out of {len(sets)} sets with {model}")
    if config.checkpoint is not None:
        parts.append(
            f"compute the likelihood of {config.rows or 'all'} rows of {config.data} under {config.checkpoint}"
        )
    return f"would {' and '.join(parts)}, and write {config.out}"


def over_sets(sets: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The mean of each score over the sets, with its spread and 95 % interval; sets are taken as seeds."""
    found = {}
    for name in dict.fromkeys(name for one in sets for name in one["scores"]):
        values = [one["scores"][name]["value"] for one in sets if name in one["scores"]]
        values = [value for value in values if value is not None]
        if values:
            found[name] = asdict(summarize(values))
    return found


def _evaluate_sets(config: EvaluateConfig, share: Share) -> dict[str, dict[str, Any]]:
    """The record of each set; nothing for all processes but the first."""
    reference = None if config.reference is None else Reference(config.reference)
    tokenizer = None if config.tokenizer is None else open_tokenizer(config.tokenizer)
    decoder = tokenizer or (None if reference is None else reference.tokenizer())
    skip = config.bad_lines == "skip"
    sets = [read_samples(source, skip_bad_lines=skip, tokenizer=decoder) for source in config.samples]
    references = _mauve_references(config, sets, reference)
    tokenizers = [_counted_by(tokenizer, decoder, one) for one in sets]
    precision = config.precision
    evaluator = None if config.evaluator == "none" else open_evaluator(config.evaluator, precision=precision)
    features: Evaluator | None = None
    if references is not None:
        same = config.features in ("evaluator", config.evaluator)
        features = evaluator if same else open_evaluator(config.features, precision=precision)
    settings, folder = config.perplexity, cache_folder()
    # All sets at once: longer runs of texts of like length, and one wait for the other processes.
    everything = [text for one in sets for text in one.texts]
    options: dict[str, Any] = {"cache": folder, "share": share, "batch_tokens": config.batch_tokens}
    if evaluator is not None:
        text_losses(evaluator, everything, settings, **options)
    if features is not None and references is not None:
        needed = [text for texts in references for text in texts or ()]
        text_features(features, everything + needed, settings, **options)
    if share.rank != 0:
        return {}
    words = None if reference is None else reference.words()
    found = {}
    for one, texts, counted in zip(sets, references or [None] * len(sets), tokenizers, strict=True):
        own = config.tokenizer is None and one.token_lists is not None
        record = evaluate_set(
            one.texts,
            token_lists=one.token_lists if own else None,
            tokenizer=counted,
            reference_words=words,
            evaluator=evaluator,
            features=features,
            mauve_reference=texts,
            perplexity=settings,
            kmeans_seeds=config.kmeans_seeds,
            seed=config.seed,
            cache=folder,
            batch_tokens=config.batch_tokens,
            source=one.source,
        )
        found[one.source] = record | ({"skipped": one.skipped} if one.skipped else {})
    return found


def _counted_by(asked: Tokenizer | None, decoder: Tokenizer | None, one: SampleSet) -> Tokenizer | str:
    """What entropy counts: what was asked for; or the set's own tokens, by name if they are known; or a default."""
    if asked is not None:
        return asked
    if one.token_lists is None:
        return decoder or open_tokenizer("gpt2")
    if decoder is not None and all(
        decoder.decode(tokens) == text for tokens, text in zip(one.token_lists[:8], one.texts, strict=False)
    ):
        return decoder.name
    return "the samples' own"


def _mauve_references(
    config: EvaluateConfig, sets: list[SampleSet], reference: Reference | None
) -> list[list[str] | None] | None:
    """Reference texts for each set, as many as it has samples; None where MAUVE cannot be had, and why is said."""
    if reference is None or config.features == "none":
        return None
    if not has_mauve():
        warnings.warn(f"{INSTALL}; it is left out", stacklevel=2)
        return None
    chosen: list[list[str] | None] = []
    for one in sets:
        texts = reference.texts(len(one.texts), config.seed)
        if min(sum(map(bool, one.texts)), sum(map(bool, texts))) < LEAST:
            warnings.warn(
                f"MAUVE needs {LEAST} texts on each side, but {one.source} has {len(one.texts)} and {reference.source} "
                f"{len(texts)}; it is left out",
                stacklevel=2,
            )
            chosen.append(None)
        else:
            chosen.append(texts)
    return chosen
