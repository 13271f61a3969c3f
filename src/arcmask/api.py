"""The commands as functions: prepare, train, tune, sample, evaluate, inspect, explore and reproduce.

Each takes objects where its command takes names: a model, a denoiser of one's own, rows (N, L), texts, a function as an
operator. A setting of a command is a keyword of its function, with the same name, default and checks.
"""

import os
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import wraps
from hashlib import sha256
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from arcmask import diagnostics, evaluation, experiment, sampling, training, tuning
from arcmask.checkpoint import load_for_use
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import PreparedCorpus, RowCorpus, TensorRows, open_prepared
from arcmask.data import prepare as prepare_corpus
from arcmask.data.corpora import Texts
from arcmask.data.row_corpus import as_rows
from arcmask.data.tokenizers import adopt_tokenizer
from arcmask.diagnostics.inspection import Inspection
from arcmask.errors import ArcmaskError
from arcmask.feedback import Operator, find_operator
from arcmask.feedback.registry import Function
from arcmask.files import json_bytes, write_whole
from arcmask.keywords import build_from_keywords, takes_settings
from arcmask.model import Denoiser, Model
from arcmask.parsing import refuse_unused
from arcmask.progress import announce
from arcmask.ranks import rank
from arcmask.recipes import add_operators, find_experiment
from arcmask.rows import Rows
from arcmask.sampling import Samples
from arcmask.sampling.sample_file import SampleSet
from arcmask.sampling.side_by_side import trace_arms
from arcmask.settings.evaluate import EvaluateConfig
from arcmask.settings.experiment import Changes, Plan
from arcmask.settings.explore import ExploreConfig
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainConfig
from arcmask.settings.tune import TuneConfig

__all__ = ["evaluate", "explore", "inspect", "prepare", "reproduce", "sample", "train", "tune"]

Name = str | os.PathLike[str]
AnyOperator = str | Function | Operator | None
AnyRows = Rows | RowCorpus | Sequence[Sequence[int]]
P = ParamSpec("P")
R = TypeVar("R")


@takes_settings(PrepareConfig, "verify")
def prepare(corpus: Name | Sequence[str], out: Name, *, tokenizer: Any = "gpt2", **settings: Any) -> PreparedCorpus:
    """Tokenise a corpus into rows in the folder `out`, and return its train rows; `held_out` has the validation rows.

    `corpus` is a name, a path, or a list of texts, each of which is a document. `tokenizer` is a name, a folder, or an
    open tokenizer, of transformers or of arcmask. All other settings are those of `arcmask prepare`.

    >>> import arcmask
    >>> texts = ["the people of the united states"] * 40
    >>> rows = arcmask.prepare(texts, "data/mine", tokenizer="text8", length=16)  # doctest: +SKIP
    """
    texts = None if isinstance(corpus, (str, os.PathLike)) else Texts(corpus)
    with TemporaryDirectory() as folder:
        if not isinstance(tokenizer, (str, os.PathLike)):
            saved = Path(folder) / "tokenizer"
            adopt_tokenizer(tokenizer).save(saved)
            tokenizer = saved
        name = corpus if texts is None else "texts"
        config = build_from_keywords(PrepareConfig, corpus=name, out=out, tokenizer=tokenizer, **settings)
        prepare_corpus(config, texts)
    return open_prepared(Path(config.out).expanduser())


@takes_settings(TrainConfig)
def train(
    init: Name | Model,
    data: Name | AnyRows,
    run: Name,
    *,
    operator: AnyOperator = "spherical",
    held_out: Rows | Sequence[Sequence[int]] | None = None,
    **settings: Any,
) -> Path:
    """Train a model with feedback in the folder `run`, or resume it, and return the path of the last checkpoint.

    `init` is a checkpoint, new:SIZE, or a model that `arcmask.load` or `arcmask.wrap` returned; such a model is copied
    and does not change. `data` is a prepared folder, or clean rows (N, L) of ids; without a prepared folder, a run
    validates if there are `held_out` rows. `operator` is a name or a function; None trains without feedback. All other
    settings are those of `arcmask train` without a recipe.

    >>> import arcmask
    >>> arcmask.train("new:tiny", "data/mine", "runs/mine", steps=100)  # doctest: +SKIP
    """
    model = None if isinstance(init, (str, os.PathLike)) else _check_trainable(init)
    name = _folder_of(data)
    corpus = None
    if name is None:
        is_new = model is None and str(init).startswith("new:")
        owner = None if is_new else model or _open(init)
        corpus = _corpus(data, owner, held_out)
    elif held_out is not None:
        raise ArcmaskError(f"{name} is a prepared folder, which has its own held-out rows; leave out held_out")
    start = init if model is None else _identity(model)
    names = {"init": start, "data": name or (corpus and corpus.source), "operator": _operator_name(operator)}
    config = build_from_keywords(TrainConfig, **names, **settings)
    return training.train(config, Path(run), model=None if model is None else deepcopy(model), corpus=corpus)


@takes_settings(InspectConfig)
def inspect(
    model: Name | Denoiser,
    data: Name | AnyRows | None = None,
    *,
    operators: Sequence[AnyOperator] = (),
    **settings: Any,
) -> Inspection:
    """Measure the geometry of a model and what feedback gains in it.

    `model` is a checkpoint or a denoiser; `data` a prepared folder or clean rows (N, L); `operators` are names or
    functions. The result has a `record` with numbers and a `reading` for each diagnostic. For a checkpoint, figures are
    written to the folder `out`, by default inspect/NAME; for a denoiser, only if `out` is given. All other settings are
    those of `arcmask inspect`.

    >>> import arcmask
    >>> arcmask.inspect(arcmask.load("sotu-tiny"), only=["norms"]).records["norms"].unseen is None
    True
    """
    denoiser = None if isinstance(model, (str, os.PathLike)) else _open(model)
    name = _folder_of(data)
    corpus = None if name or data is None else _corpus(data, denoiser or _open(model, settings.get("mask_id")))
    names = {"checkpoint": _name_of(model), "data": name, "operators": tuple(map(_operator_name, operators))}
    return diagnostics.inspect(build_from_keywords(InspectConfig, **names, **settings), denoiser, corpus)


@takes_settings(ExploreConfig, "num", "batch_size", "prompts")
def explore(
    model: Name | Denoiser,
    *,
    feedback: Sequence[AnyOperator] = ("spherical", "linear", "none"),
    **settings: Any,
) -> Path:
    """Write a page that shows how a sample forms, step by step, and return its path.

    `model` is a checkpoint, or a denoiser with a `tokenizer`. `feedback` has the arms to show side by side: names of
    operators, functions, or None for no feedback. All other settings are those of `arcmask explore`.

    >>> import arcmask
    >>> arcmask.explore("sotu-tiny", prompt="the people of", feedback=["spherical", None])  # doctest: +SKIP
    """
    names = {"checkpoint": _name_of(model), "feedback": tuple(map(_operator_name, feedback))}
    config = build_from_keywords(ExploreConfig, **names, **settings)
    keywords = ", ".join(f"{name}={value!r}" for name, value in (names | settings).items() if name != "checkpoint")
    return write_explorer(config, lambda _: _open(model), f"arcmask.explore({_source(model)}, {keywords})")


def write_explorer(config: ExploreConfig, load: Callable[[str], Denoiser], command: str | None = None) -> Path:
    """Write the page of the explorer, and open it if the settings say so. `command` is what to run for the same page.

    `load` opens the checkpoint.
    """
    from arcmask.report.explorer import check_page, write_page  # what draws is imported late: it needs an extra

    if notice := check_page(config, command):
        announce(notice)
    page = write_page(config, trace_arms(config, load), command)
    if config.open:
        webbrowser.open(page.absolute().as_uri())
    return page


@takes_settings(EvaluateConfig)
def evaluate(
    *samples: Name | Sequence[str] | Samples,
    reference: Name | PreparedCorpus | Sequence[str] | None = None,
    checkpoint: Name | Denoiser | None = None,
    data: Name | AnyRows | None = None,
    operator: AnyOperator = None,
    out: Name | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score sets of samples, and the likelihood of a checkpoint, and return what `arcmask evaluate` writes.

    Each of `samples` is one set: a file or folder, a list of texts, or what `arcmask.sample` returned. `reference` is a
    name, or a list of texts. `checkpoint` is a name or a denoiser; `data` a prepared folder, or clean rows (N, L). A
    file is written only if `out` is given. All other settings are those of `arcmask evaluate`.

    >>> import arcmask
    >>> scores = arcmask.evaluate(["a b a b", "one two"], evaluator="none")
    >>> scores["sets"]["samples-1"]["scores"]["distinct_1"]["value"]
    0.75
    """
    sets = {f"samples-{number}": _sample_set(one, number) for number, one in enumerate(samples, 1) if not _is_name(one)}
    if reference is not None and _folder_of(reference) is None:
        sets["reference"] = _sample_set(reference, 0)
    name, denoiser = _folder_of(data), None if _is_name(checkpoint) else checkpoint
    corpus = None
    if data is not None and name is None:
        corpus = _corpus(data, _open(checkpoint))
    config = build_from_keywords(
        EvaluateConfig,
        samples=tuple(str(one) if _is_name(one) else f"samples-{number}" for number, one in enumerate(samples, 1)),
        reference=_folder_of(reference) or (None if reference is None else "reference"),
        checkpoint=None if checkpoint is None else _name_of(checkpoint),
        data=name or (corpus and corpus.source),
        operator=None if operator is None else _operator_name(operator),
        out=out,
        **settings,
    )
    notice = evaluation.sets.check_evaluation(config, corpus)
    if notice:
        announce(notice)
    result = evaluation.evaluate(config, lambda _: _open(denoiser or checkpoint), sets=sets, corpus=corpus)
    if result is not None and config.out is not None:
        write_whole(Path(config.out), json_bytes(result))
    return result or {}


@takes_settings(Changes)
def reproduce(plan: str | Plan, folder: Name | None = None, **changes: Any) -> Path:
    """Carry out an experiment in a folder, or resume it, write its report, and return the folder.

    `plan` is the name of a recipe, or a `Plan`. The folder is by default runs/RECIPE, and has report/report.html. The
    changes are those of `arcmask reproduce`; `operators` takes functions too.

    >>> import arcmask
    >>> arcmask.reproduce("quickstart", seeds=[1, 2], steps=20)  # doctest: +SKIP
    """
    from arcmask.report import build_report

    changes |= {"operators": tuple(map(_operator_name, changes["operators"]))} if changes.get("operators") else {}
    change = build_from_keywords(Changes, **changes)
    named = find_experiment(plan) if isinstance(plan, str) else plan
    changed = change.apply(named)
    change.refuse_unused(changed)
    keywords = "".join(f", {name}={value!r}" for name, value in changes.items())
    home = experiment.reproduce(
        add_operators(changed, change.operators or ()),
        None if folder is None else Path(folder),
        command=f"arcmask.reproduce({_source(plan)}, {str(folder or named.folder)!r}{keywords})",
    )
    if rank() == 0:
        build_report([str(home)], None)
    return home


def _opening(function: Callable[Concatenate[Denoiser, P], R]) -> Callable[Concatenate[Name | Denoiser, P], R]:
    """Let a function that takes a denoiser take the name of a checkpoint too."""

    @wraps(function)
    def call(denoiser: Name | Denoiser, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(_open(denoiser), *args, **kwargs)

    return call  # type: ignore[return-value]


def _opening_rows(
    function: Callable[Concatenate[Denoiser, Rows, P], R],
) -> Callable[Concatenate[Name | Denoiser, Name | PreparedCorpus | Rows, P], R]:
    """Let a function that fits on rows take a prepared folder too: as many train and held-out rows as the command."""

    @wraps(function)
    def call(denoiser: Name | Denoiser, rows: Name | PreparedCorpus | Rows, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_tuning(signature(function).bind(denoiser, rows, *args, **kwargs).arguments)
        folder, model = _folder_of(rows), _open(denoiser)
        if folder is None:
            return function(model, as_rows(rows), *args, **kwargs)
        train_rows = open_prepared(folder)
        check_corpus(train_rows, model)
        if (validation := train_rows.held_out) is not None:
            kwargs.setdefault("held_out", validation.rows(validation.spread(TuneConfig.held_out_rows)))
        return function(model, train_rows.rows(train_rows.spread(TuneConfig.rows)), *args, **kwargs)

    return call  # type: ignore[return-value]


def _check_tuning(arguments: Mapping[str, Any]) -> None:
    """Raise for settings of a call of `tune` that the command would refuse."""
    names = {setting.name for setting in fields(TuneConfig)} - {"rows"}
    given = {name: value for name, value in arguments.items() if name in names}
    given |= {"operator": _operator_name(given["operator"])} if "operator" in given else {}
    refuse_unused(TuneConfig(checkpoint="", data="", out="", **given), given)


sample = _opening(sampling.sample)
tune = _opening_rows(tuning.tune)


def _is_name(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _open(model: Any, mask_id: int | None = None) -> Denoiser:
    """Return a denoiser: the one of a checkpoint's name, or the object itself."""
    if _is_name(model):
        return load_for_use(model, mask_id=mask_id)
    if isinstance(model, Denoiser):
        return model
    kind = type(model).__name__
    if hasattr(model, "get_input_embeddings"):
        raise ArcmaskError(f"a {kind} is a model of transformers; give arcmask.wrap(model, tokenizer=…)")
    raise ArcmaskError(
        f"a {kind} is not a denoiser; it needs mask_id, max_length, table, hidden and logits (see arcmask.Denoiser)"
    )


def _check_trainable(model: Any) -> Model:
    denoiser = _open(model)
    if not isinstance(denoiser, Model):
        raise ArcmaskError(
            f"a {type(model).__name__} cannot save itself, so arcmask.train cannot train it; write a loop around "
            "arcmask.objective.TwoPass, as the page docs/python.md shows"
        )
    return denoiser


def _identity(model: Model) -> str:
    """Return a text that is equal for equal models: the kind, and a hash of the weights."""
    digest = sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return f"{type(model).__name__} with weights {digest.hexdigest()[:16]}"


def _name_of(model: Any) -> str:
    return os.fspath(model) if _is_name(model) else type(model).__name__


def _source(value: Any) -> str:
    """Return how a name or an object is written in a call."""
    return repr(os.fspath(value)) if _is_name(value) else type(value).__name__


def _folder_of(data: Any) -> str | None:
    """Return the folder that a name or an opened corpus stands for; None for anything else."""
    if isinstance(data, PreparedCorpus):
        return str(data.folder)
    return os.fspath(data) if _is_name(data) else None


def _corpus(rows: Any, denoiser: Denoiser | None, held_out: Any = None) -> RowCorpus:
    """Return rows as a corpus of a denoiser; of a new model, whose mask is the id after theirs, without one."""
    if isinstance(rows, RowCorpus):
        return rows
    mask_id, tokenizer = getattr(denoiser, "mask_id", None), getattr(denoiser, "tokenizer", None)
    return TensorRows(rows, mask_id=mask_id, tokenizer=tokenizer, held_out=held_out)


def _operator_name(operator: AnyOperator) -> str:
    """Return the name of an operator; a function is registered under its own. FILE.py:FUNCTION stays as it is."""
    if operator is None:
        return "none"
    return operator if isinstance(operator, str) else find_operator(operator).name


def _sample_set(samples: Any, number: int) -> SampleSet:
    """Return texts or samples in memory as a set."""
    name = f"samples-{number}" if number else "reference"
    texts = samples.texts if isinstance(samples, Samples) else samples
    tokens = samples.tolist() if isinstance(samples, Samples) else None
    if texts is None:
        raise ArcmaskError("the samples have no texts, since the denoiser has no tokenizer")
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise ArcmaskError(f"{name} must be a file, a list of texts or Samples, but got {type(samples).__name__}")
    return SampleSet(name, list(texts), tokens)
