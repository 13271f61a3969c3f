"""The scores of sets of samples, and the likelihood of held-out rows under a denoiser.

Under torchrun every process scores its share of the texts into the cache, and the first one collects the results.
Settings are checked before a model is loaded.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import arcmask.evaluation.scores as scoring
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import RowCorpus, Tokenizer, open_prepared, open_tokenizer
from arcmask.downloads import cache_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import Share
from arcmask.evaluation.evaluator import Evaluator, check_evaluator, open_evaluator
from arcmask.evaluation.nearest import Neighbours, open_neighbours
from arcmask.evaluation.statistics import half_width, summarize
from arcmask.evaluation.texts import Reference, ReferenceWords
from arcmask.feedback import find_operator
from arcmask.files import sha256
from arcmask.model import Denoiser
from arcmask.objective import TwoPass, Way, likelihood_bounds
from arcmask.progress import Progress
from arcmask.rows import Rows
from arcmask.run_folder import check_output, read_settings
from arcmask.sampling.sample_file import SampleSet, read_samples
from arcmask.settings.evaluate import KMEANS_SEEDS, EvaluateConfig, PerplexitySettings

_DEFAULT = PerplexitySettings()
_OWN_TOKENS = "the samples' own"


def evaluate(
    config: EvaluateConfig,
    load: Callable[[str], Denoiser],
    *,
    sets: Mapping[str, SampleSet] = MappingProxyType({}),
    corpus: RowCorpus | None = None,
) -> dict[str, Any] | None:
    """Score what the settings name. `load` opens the checkpoint. None in all processes but the first.

    `sets` has samples that are in memory, by their name in the settings, and `corpus` the rows of the likelihood.

    The keys are `settings`, `sets` (a record each, as `evaluate_set` returns it), `over_sets` and `likelihood`. All
    models are opened before the first text is scored.
    """
    check_evaluation(config, corpus)
    share, denoiser = Share.of_this_process(), None
    inputs = _open_sets(config, sets) if config.samples else None
    if config.checkpoint is not None and config.data is not None and share.rank == 0:
        denoiser = _open_denoiser(config, load)
        corpus = _open_held_out(denoiser, corpus or config.data)
    scored = {} if inputs is None else _evaluate_sets(config, inputs, share)
    if share.rank != 0:
        return None
    result: dict[str, Any] = {
        "settings": config.to_dict(),
        "sets": scored,
        "over_sets": over_sets(list(scored.values())),
    }
    if denoiser is not None and corpus is not None:
        bounds = likelihood(denoiser, corpus, rows=config.rows, seed=config.seed)
        result["likelihood"] = {"checkpoint": config.checkpoint, **bounds}
    return result


def check_evaluation(config: EvaluateConfig, corpus: RowCorpus | None = None) -> str | None:
    """Raise for what can be known before a model is opened. Return a sentence about a file that will be replaced."""
    notice = None
    if config.out is not None:
        out = Path(config.out)
        notice = check_output(out, config.to_dict(), _stored_settings, overwrite=config.overwrite)
        if not out.absolute().parent.is_dir():
            raise ArcmaskError(f"cannot write to {out}: its folder does not exist")
    if config.data is not None and corpus is None:
        open_prepared(config.data, "validation")
    if config.nearest is not None:
        open_neighbours(config.nearest)
    if config.operator is not None:
        find_operator(config.operator)
    if config.checkpoint is not None or len(config.samples) > 1:
        half_width(1.0, 2)  # raises without scipy
    return notice


def _stored_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings in a file of scores; None if it is something else."""
    with suppress(ArcmaskError):
        settings = read_settings(path).get("settings")
        return settings if isinstance(settings, dict) else None
    return None


def describe_evaluation(config: EvaluateConfig, load: Callable[[str], Denoiser]) -> str:
    """Describe in one sentence what would be scored, after the same checks; reads the samples, opens no evaluator."""
    check_evaluation(config)
    parts = []
    if config.samples:
        texts = {text for one in _read_sets(config, {}).sets for text in one.texts}
        for name in {config.evaluator, config.features} - {"none", "evaluator"}:
            check_evaluator(name)
        model = "no evaluator" if config.evaluator == "none" else f"the evaluator {config.evaluator}"
        parts.append(f"score {len(texts)} different texts out of {len(config.samples)} sets with {model}")
    if config.checkpoint is not None and config.data is not None:
        _open_held_out(_open_denoiser(config, load), config.data)
        rows = config.rows or "all"
        parts.append(f"compute the likelihood of {rows} rows of {config.data} under {config.checkpoint}")
    return f"would {' and '.join(parts)}" + ("" if config.out is None else f", and write {config.out}")


def over_sets(sets: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Summarise each score over the sets, which are taken as seeds: mean, standard deviation, 95 % interval."""
    values: dict[str, list[float]] = {}
    for one in sets:
        for name, score in one["scores"].items():
            if score["value"] is not None:
                values.setdefault(name, []).append(score["value"])
    return {name: asdict(summarize(column)) for name, column in values.items()}


def evaluate_set(
    texts: Sequence[str],
    *,
    token_lists: Sequence[Sequence[int]] | None = None,
    tokenizer: Tokenizer | str | None = None,
    reference_words: ReferenceWords | None = None,
    evaluator: Evaluator | None = None,
    features: Evaluator | None = None,
    mauve_reference: Sequence[str] | None = None,
    neighbours: Neighbours | None = None,
    perplexity: PerplexitySettings = _DEFAULT,
    mauve_seed: int | None = None,
    kmeans_seeds: Sequence[int] = KMEANS_SEEDS,
    seed: int = 0,
    cache: Path | None = None,
    batch_tokens: int | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Return the `count`, `source`, `sha256` and `scores` of a set. A score whose inputs are missing is left out.

    Entropy counts `token_lists`, whose tokenizer is named by `tokenizer`; without them, the tokens that `tokenizer`
    makes. Perplexity needs `evaluator`. MAUVE compares the samples with `mauve_reference` by the features of
    `features`, or of the evaluator. It is the value of `mauve_seed`, or without one the mean over `kmeans_seeds`. The
    distance to the nearest training row and the share of distinct samples need `neighbours`. The folder `cache`
    (default: the user's) keeps the evaluators' results.

    >>> from arcmask.evaluation import evaluate_set
    >>> evaluate_set(["a b a b", "one two"])["scores"]["distinct_1"]["value"]
    0.75
    """
    if not texts:
        raise ArcmaskError("there are no samples to score")
    if isinstance(texts, str):
        raise ArcmaskError("texts is one text; give a list of texts")
    if token_lists is not None and len(token_lists) != len(texts):
        raise ArcmaskError(f"there are {len(texts)} texts, but {len(token_lists)} lists of tokens")
    options: dict[str, Any] = {"cache": cache_folder() if cache is None else cache, "batch_tokens": batch_tokens}
    scores: dict[str, Any] = {}
    if evaluator is not None:
        keep_features = mauve_reference is not None and features in (None, evaluator)
        losses = scoring.text_losses(evaluator, texts, perplexity, keep_features=keep_features, **options)
        assert losses is not None
        scores["generative_perplexity"] = scoring.perplexity_score(evaluator, losses, perplexity, seed)
    name = tokenizer.name if isinstance(tokenizer, Tokenizer) else tokenizer
    if token_lists is None and isinstance(tokenizer, Tokenizer):
        token_lists = tokenizer.encode_batch(texts)
    if token_lists is not None:
        scores["entropy"] = scoring.entropy_score(token_lists, name or _OWN_TOKENS, seed)
    if evaluator is None or evaluator.own_tokenizer is None:  # a sequence has no words
        for n in (1, 2, 3):
            scores[f"distinct_{n}"] = scoring.distinct_score(texts, n, seed)
        scores["repetition"] = scoring.repetition_score(texts, seed)
    if reference_words is not None:
        scores["real_word_rate"] = scoring.real_word_score(texts, reference_words, seed)
    if neighbours is not None:
        scores |= scoring.nearest_scores(texts, neighbours, seed)
    if mauve_reference is not None:
        model = features or evaluator
        if model is None:
            raise ArcmaskError("MAUVE needs a causal LM for its features; give features or evaluator")
        ours, real = (scoring.text_features(model, side, perplexity, **options) for side in (texts, mauve_reference))
        assert ours is not None
        assert real is not None
        scores |= scoring.mauve_scores(ours, real, model, perplexity, mauve_seed, kmeans_seeds)
    digest = sha256(json.dumps(list(texts)).encode())
    return {"count": len(texts), "source": source, "sha256": digest, "scores": scores}


def likelihood(
    denoiser: Denoiser,
    data: str | RowCorpus,
    *,
    rows: int | None = None,
    seed: int = 0,
    batch_size: int = 16,
    split: str = "validation",
) -> dict[str, Any]:
    """Return the likelihood bound of a prepared folder, or of rows: nats per token, perplexity and bits per byte.

    The keys are `plain` and, if the denoiser has feedback, `two_pass`; both see the same noise. The rows (default: all)
    are spread evenly over the split. The seed chooses rows, times and masks.
    """
    if rows is not None and rows < 1:
        raise ArcmaskError(f"rows is {rows}, but must be 1 or more")
    corpus = _open_held_out(denoiser, data, split)
    numbers = corpus.spread(rows, seed)
    count = len(numbers)
    feedback = getattr(denoiser, "feedback", None)
    operators: dict[Way, str | None] = {"plain": None}
    if feedback is not None and feedback.operator != "none":
        operators["two_pass"] = feedback.operator
    bytes_per_token = corpus.bytes_per_token

    def batches(progress: Progress) -> Iterator[Rows]:
        for start in range(0, count, batch_size):
            batch = corpus.rows(numbers[start : start + batch_size])
            yield batch
            progress.advance(len(batch))

    with Progress("likelihood", unit="rows", total=count) as progress:
        bounds = likelihood_bounds(TwoPass(denoiser, feedback), batches(progress), list(operators), seed=seed)
    return {
        way: {
            "nats": bound.nats,
            "standard_error": None if math.isnan(bound.standard_error) else bound.standard_error,
            "perplexity": bound.perplexity,
            "bits_per_byte": None if bytes_per_token is None else bound.bits_per_byte(bytes_per_token),
            "rows": bound.rows,
            "tokens": bound.tokens,
            "data": corpus.source,
            "split": corpus.split,
            "tokenizer": corpus.tokenizer_name,
            "seed": seed,
            "batch_size": batch_size,
            "feedback": operators[way],
        }
        for way, bound in bounds.items()
    }


def _open_denoiser(config: EvaluateConfig, load: Callable[[str], Denoiser]) -> Denoiser:
    """Open the checkpoint, and raise if the settings name another operator than its own."""
    assert config.checkpoint is not None
    denoiser = load(config.checkpoint)
    own = getattr(getattr(denoiser, "feedback", None), "operator", "none")
    if config.operator is not None and find_operator(config.operator).name != own:
        raise ArcmaskError(
            f"operator is {config.operator}, but the feedback of {config.checkpoint} is {own}; the operator of a "
            "checkpoint cannot be changed here"
        )
    return denoiser


def _open_held_out(denoiser: Denoiser, data: str | RowCorpus, split: str = "validation") -> RowCorpus:
    """Open a split of a prepared folder, and raise if the denoiser cannot read its rows."""
    corpus = data if isinstance(data, RowCorpus) else open_prepared(data, split)
    check_corpus(corpus, denoiser)
    return corpus


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The sets and what they are compared with, read."""

    reference: Reference | None
    tokenizer: Tokenizer | None  # that the user named
    decoder: Tokenizer | None  # that, or that of the reference or of the rows to compare with
    sets: list[SampleSet]
    mauve_references: list[list[str] | None]  # for each set
    tokenizers: Sequence[Tokenizer | str] = ()  # of the entropy of each set, once opened, as the models
    evaluator: Evaluator | None = None
    features: Evaluator | None = None


def _open_sets(config: EvaluateConfig, in_memory: Mapping[str, SampleSet]) -> _Inputs:
    """Read the samples and the reference, and open the tokenizers and the evaluators."""
    inputs = _read_sets(config, in_memory)
    names = {config.evaluator, config.features if any(inputs.mauve_references) else "none"} - {"none", "evaluator"}
    models = {name: open_evaluator(name, precision=config.precision) for name in sorted(names)}
    evaluator = models.get(config.evaluator)
    features = models.get(config.features, evaluator)
    decoder, sets = inputs.decoder, inputs.sets
    if evaluator is not None and evaluator.own_tokenizer is not None:
        decoder = decoder or open_tokenizer(evaluator.own_tokenizer)
        sets = [_readable(one, evaluator, skip_bad_lines=config.bad_lines == "skip") for one in sets]
    tokenizers = [inputs.tokenizer or _default_tokenizer(decoder, one) for one in sets]
    return replace(inputs, sets=sets, tokenizers=tokenizers, evaluator=evaluator, features=features)


def _readable(samples: SampleSet, evaluator: Evaluator, *, skip_bad_lines: bool) -> SampleSet:
    """Return the samples that an evaluator can read. Any other raises, or is left out with a warning."""
    good, skipped = [], list(samples.skipped)
    for index, text in enumerate(samples.texts):
        try:
            evaluator.encode([text])
            good.append(index)
        except ArcmaskError as error:
            where = f"sample {index + 1} of {samples.source}: {error}"
            if not skip_bad_lines:
                raise ArcmaskError(where) from error
            warnings.warn(f"{where}; it is left out", stacklevel=2)
            skipped.append(where)
    if not good:
        raise ArcmaskError(f"{samples.source} holds no sample that {evaluator.name} can read")
    tokens = samples.token_lists and [samples.token_lists[index] for index in good]
    return replace(samples, texts=[samples.texts[index] for index in good], token_lists=tokens, skipped=skipped)


def _read_sets(config: EvaluateConfig, in_memory: Mapping[str, SampleSet]) -> _Inputs:
    """Read the samples and the reference."""
    reference = None
    if config.reference is not None:
        texts = in_memory.get(config.reference)
        reference = Reference(config.reference, None if texts is None else texts.texts)
    tokenizer = None if config.tokenizer is None else open_tokenizer(config.tokenizer)
    decoder = tokenizer or (None if reference is None else reference.tokenizer())
    if decoder is None and config.nearest is not None:
        decoder = open_prepared(config.nearest).tokenizer()
    skip = config.bad_lines == "skip"
    sets = [
        in_memory.get(source) or read_samples(source, skip_bad_lines=skip, tokenizer=decoder)
        for source in config.samples
    ]
    return _Inputs(
        reference=reference,
        tokenizer=tokenizer,
        decoder=decoder,
        sets=sets,
        mauve_references=_mauve_references(config, sets, reference),
    )


def _evaluate_sets(config: EvaluateConfig, inputs: _Inputs, share: Share) -> dict[str, dict[str, Any]]:
    """Return the record of each set; nothing in all processes but the first."""
    sets, evaluator, features, reference = inputs.sets, inputs.evaluator, inputs.features, inputs.reference
    # All sets at once: larger batches of texts of similar length, and one wait for the other processes.
    texts = [text for one in sets for text in one.texts]
    real = [text for one in inputs.mauve_references for text in one or ()]
    options: dict[str, Any] = {"cache": cache_folder(), "batch_tokens": config.batch_tokens}
    if evaluator is not None:
        keep_features = bool(real) and features is evaluator
        scoring.text_losses(evaluator, texts, config.perplexity, share=share, keep_features=keep_features, **options)
    if features is not None and real:
        scoring.text_features(features, texts + real, config.perplexity, share=share, **options)
    if share.rank != 0:
        return {}
    options |= {name: getattr(config, name) for name in ("perplexity", "mauve_seed", "kmeans_seeds", "seed")}
    options |= {"evaluator": evaluator, "features": features}
    options["reference_words"] = None if reference is None else reference.words()
    options["neighbours"] = None if config.nearest is None else Neighbours.open(config.nearest)
    records = {}
    for one, mauve_reference, counted in zip(sets, inputs.mauve_references, inputs.tokenizers, strict=True):
        options["token_lists"] = one.token_lists if inputs.tokenizer is None else None
        options |= {"tokenizer": counted, "mauve_reference": mauve_reference}
        record = evaluate_set(one.texts, source=one.source, **options)
        records[one.source] = record | ({"skipped": one.skipped} if one.skipped else {})
    return records


def _default_tokenizer(decoder: Tokenizer | None, one: SampleSet) -> Tokenizer | str:
    """Return the tokenizer of the entropy: the name of the set's own tokens if it has any, or a default."""
    if one.token_lists is None:
        return decoder or open_tokenizer("gpt2")
    pairs = zip(one.token_lists[:8], one.texts, strict=False)
    is_same = decoder is not None and all(decoder.decode_row(tokens) == text for tokens, text in pairs)
    return decoder.name if decoder is not None and is_same else _OWN_TOKENS


def _mauve_references(
    config: EvaluateConfig, sets: list[SampleSet], reference: Reference | None
) -> list[list[str] | None]:
    """Draw as many reference texts as each set has samples; None, with a warning, where MAUVE cannot be computed."""
    if reference is None or config.features == "none":
        return [None] * len(sets)
    if not scoring.has_mauve():
        warnings.warn(f"{scoring.INSTALL}; it is left out", stacklevel=2)
        return [None] * len(sets)
    references: list[list[str] | None] = []
    for one in sets:
        texts = reference.texts(len(one.texts), config.seed)
        is_enough = min(sum(map(bool, one.texts)), sum(map(bool, texts))) >= scoring.LEAST
        references.append(texts if is_enough else None)
        if not is_enough:
            warnings.warn(
                f"MAUVE needs {scoring.LEAST} texts on each side, but {one.source} has {len(one.texts)} and "
                f"{reference.source} {len(texts)}; it is left out",
                stacklevel=2,
            )
    return references
