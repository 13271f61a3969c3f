"""Run every possible diagnostic on a checkpoint, and write figures, data and readings into one folder.

This module finds the model, its text and its run. The other modules know what is measured and drawn.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from math import radians
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcmask.checkpoint import load_for_use
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import Batches, PreparedCorpus, RowCorpus, open_prepared, read_index
from arcmask.data.prepared import INDEX
from arcmask.diagnostics.cost import blend_costs
from arcmask.diagnostics.curves import angles_over_training
from arcmask.diagnostics.gain import WEIGHTS, GainCurve, feedback_operators, gain_curve
from arcmask.diagnostics.generation import (
    TEMPERATURES,
    GenerationCurve,
    Generator,
    Quality,
    evaluator_loss,
    generation_curve,
    real_words,
)
from arcmask.diagnostics.generation import WEIGHTS as GENERATION_WEIGHTS
from arcmask.diagnostics.masked_positions import angles_over_time, confidence_weights, karcher_distances, top_accuracy
from arcmask.diagnostics.norms import lerp_norms, norms_by_rank, sphere_paths
from arcmask.diagnostics.predictions import TIMES, Predictions, predict
from arcmask.downloads import cache_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference, open_evaluator
from arcmask.evaluation.texts import words_of_rows
from arcmask.feedback import Confidence, SoftMask, find_operator
from arcmask.files import json_bytes, write_whole, written_whole
from arcmask.model import Denoiser, Model
from arcmask.progress import Progress
from arcmask.rows import Rows
from arcmask.run_folder import CONFIG, METRICS, find_run, interpreting, read_metrics, read_settings, read_yaml
from arcmask.settings.inspect import GENERATION, NAMES, PREDICTIONS, InspectConfig

Metrics = list[dict[str, Any]]  # a record per step


@dataclass(frozen=True)
class Inspection:
    """The folder that was written, a reading and a record per diagnostic, and a sentence for each kind left out."""

    folder: Path | None  # None if nothing was written
    readings: dict[str, str]
    left_out: list[str]
    records: dict[str, Any]  # the numbers, such as a `GainCurve`


_TEXT = ("gain", GENERATION, *PREDICTIONS)
_NEEDS = {"text": _TEXT, "metrics": ("training",)}  # what a diagnostic needs beside the model


def inspect(config: InspectConfig, denoiser: Denoiser | None = None, corpus: RowCorpus | None = None) -> Inspection:
    """Measure, draw and write every diagnostic that is possible, or every one that the settings name.

    `denoiser` and `corpus` are used in place of those that the settings name. For a denoiser, files are written only if
    the settings name a folder.
    """
    for name in config.operators:
        find_operator(name)
    named_run = None if config.run is None else Path(config.run)
    run = find_run(config.checkpoint) if named_run is None and denoiser is None else named_run
    settings = {} if run is None else read_settings(run / CONFIG, read_yaml)
    metrics = _metrics(config, run)
    corpus = _corpus(config, run, settings) if corpus is None else corpus
    names, left_out = _choose(config, corpus, metrics, settings)
    start = _start(run, settings)
    quality = find_quality(config.evaluator, corpus) if GENERATION in names and corpus is not None else None
    folder = config.folder if denoiser is None or config.out is not None else None
    save = None if folder is None else _figure_saver()
    with _scratch(folder) as scratch:
        denoiser = _open(config) if denoiser is None else _ready(denoiser)
        rows = None if corpus is None else _rows(config, corpus, denoiser, config.tokens)
        times = () if set(names).isdisjoint(PREDICTIONS) else TIMES
        records: dict[str, Any] = {}
        total = len(times) + len(names) + sum(count for name, count in curve_cells(config).items() if name in names)
        with Progress("inspecting", unit="parts", total=total) as progress:
            predictions: list[Predictions] = []
            for time in times:
                assert rows is not None
                predictions += predict(denoiser, rows, [time], top_k=_top_k(denoiser), seed=config.seed)
                progress.advance(1)
            frequencies = None if corpus is None else corpus.frequencies
            measures = _measures(denoiser, predictions, frequencies, metrics, start)
            if corpus is not None:
                measures |= _feedback_measures(config, denoiser, corpus, quality, progress.advance)
            for name in names:
                record = records[name] = measures[name]()
                if scratch is not None and save is not None:
                    save(record, scratch / f"{name}.png")
                progress.advance(1)
        readings = {name: record.reading for name, record in records.items()}
        about = asdict(config) | {"run": run and str(run), "data": None if corpus is None else corpus.source}
        about |= {"split": None if corpus is None else corpus.split, "rows": None if rows is None else len(rows)}
        if scratch is not None:
            _write_summary(scratch, config.checkpoint, about | {"readings": readings, "left_out": left_out})
    return Inspection(folder=folder, readings=readings, left_out=left_out, records=records)


def _figure_saver() -> Callable[[Any, Path], None]:
    """Return a function that draws and writes a record. Only figures need matplotlib, so it is imported here."""
    from arcmask import figures
    from arcmask.diagnostics.drawing import draw

    def save(record: Any, path: Path) -> None:
        figures.save(draw(record), path, {"reading": record.reading, **asdict(record)})

    return save


def _scratch(folder: Path | None) -> AbstractContextManager[Path | None]:
    """Return the context in which the files of a folder are written; None if nothing is."""
    if folder is None:
        return nullcontext()
    return written_whole(folder, tuple(f"{name}.{kind}" for name in NAMES for kind in ("png", "json")))


def _write_summary(folder: Path, title: str, about: dict[str, Any]) -> None:
    """Write inspect.json, and inspect.md with the readings and figures."""
    write_whole(folder / "inspect.json", json_bytes(about))
    parts = [f"## {name}\n\n{reading}\n\n![{name}]({name}.png)" for name, reading in about["readings"].items()]
    page = "\n\n".join([f"# {title}", *parts, *about["left_out"]]) + "\n"
    write_whole(folder / "inspect.md", page.encode())


def _measures(
    denoiser: Denoiser, predictions: list[Predictions], frequencies: Tensor | None, metrics: Metrics, start: Confidence
) -> dict[str, Callable[[], Any]]:
    """Return a function for each diagnostic that measures the model and returns a record."""
    table, mask_id, feedback = denoiser.table.detach(), denoiser.mask_id, _feedback(denoiser)
    steps = 3 if feedback is None else feedback.karcher_steps
    learned = None if feedback is None or feedback.operator == "none" else feedback.confidence

    # The sphere needs the records of angles and paths again.
    angles = cache(lambda: angles_over_time(table, mask_id, predictions, steps))
    paths = cache(lambda: lerp_norms(table, mask_id, predictions, learned or start))
    return {
        "norms": lambda: norms_by_rank(table, mask_id, frequencies),
        "angles": angles,
        "training": lambda: angles_over_training(metrics),
        "paths": paths,
        "sphere": lambda: sphere_paths(radians(angles().euclidean_mean), paths().mean_norm.median),
        "confidence": lambda: confidence_weights(predictions, start, learned),
        "karcher": lambda: karcher_distances(table, predictions),
        "accuracy": lambda: top_accuracy(predictions),
        "cost": lambda: blend_costs(table, mask_id, top_k=_top_k(denoiser), karcher_steps=steps),
    }


def _feedback_measures(
    config: InspectConfig,
    denoiser: Denoiser,
    corpus: RowCorpus,
    quality: Quality | None,
    advance: Callable[[int], object],
) -> dict[str, Callable[[], Any]]:
    """Return the same for what feedback gains in the model as it is."""
    operators, top_k = config.operators or None, _top_k(denoiser)

    def gain() -> GainCurve:
        rows = _rows(config, corpus, denoiser, config.gain_tokens)
        return gain_curve(denoiser, rows, operators, seed=config.seed, top_k=top_k, advance=advance)

    def generation() -> GenerationCurve:
        sizes = {"samples": config.samples, "steps": config.steps, "seed": config.seed}
        assert quality is not None
        generator = Generator(denoiser=denoiser, quality=quality, length=corpus.length, **sizes)
        return generation_curve(generator, operators, top_k=top_k, advance=advance)

    return {"gain": gain, GENERATION: generation}


def find_quality(evaluator: str, corpus: RowCorpus) -> Quality:
    """Return how generated text is measured: by an evaluator, or by the words of the corpus if there is none."""
    if evaluator == "none" and isinstance(corpus, PreparedCorpus):
        return real_words(Reference(str(corpus.folder)).words())
    if evaluator == "none":
        return real_words(words_of_rows(corpus.rows(range(len(corpus))), corpus.tokenizer()))
    return evaluator_loss(open_evaluator(evaluator), cache_folder())


def curve_cells(config: InspectConfig) -> dict[str, int]:
    """Return how many bounds or sets of samples the curves of feedback need."""
    operators = len(feedback_operators(config.operators or None))
    samples = operators * len(GENERATION_WEIGHTS) + len(TEMPERATURES)
    counts = {"gain": operators * len(WEIGHTS), GENERATION: samples}
    return {name: counts[name] for name in counts if name in config.names}


def _feedback(denoiser: Denoiser) -> SoftMask | None:
    return getattr(denoiser, "feedback", None)


def _top_k(denoiser: Denoiser) -> int:
    """Return the number of candidates of the model's feedback; three for a model without."""
    feedback = _feedback(denoiser)
    top_k = 3 if feedback is None else feedback.top_k
    return min(top_k, denoiser.table.shape[0] - 1)


def _metrics(config: InspectConfig, run: Path | None) -> Metrics:
    """Return the metrics with angles; raise if the user named the run and it has none."""
    if run is None or (config.run is None and not (run / METRICS).is_file()):
        return []
    fed = [line for line in read_metrics(run) if "angle" in line]
    if config.run is not None and "training" in config.names and not fed:
        raise ArcmaskError(f"the metrics of the run {run} have no angles: none of its steps used feedback")
    return fed


def _corpus(config: InspectConfig, run: Path | None, settings: dict[str, Any]) -> PreparedCorpus | None:
    """Open the held-out rows, or the training rows of a corpus without any, of the given folder or the run's."""
    folder = Path(config.data) if config.data is not None else run and find_data(run, settings)
    if folder is None:
        return None
    held_out = read_index(folder).splits["validation"].rows > 0
    return open_prepared(folder, "validation" if held_out else "train")


def find_data(run: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the prepared folder of a run; a relative path is tried here and in the folders above the run."""
    name = settings.get("data")
    if not isinstance(name, str):
        return None
    folders = [Path(name), *(folder / name for folder in run.resolve().parents)]
    return next((folder for folder in folders if (folder / INDEX).is_file()), None)


def _choose(
    config: InspectConfig, corpus: RowCorpus | None, metrics: Metrics, settings: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the diagnostics that are possible, and a sentence for each kind that is not; raise if `only` names one."""
    reasons = {}
    if corpus is None:
        gone = f"the run's own text, {settings['data']}, is missing; " if settings.get("data") else ""
        reasons["text"] = f"{gone}pass --data FOLDER, prepared with the model's tokenizer by `arcmask prepare`"
    if not metrics:
        reasons["metrics"] = "pass --run RUN, a training run with feedback"
    names, left_out = list(config.names), []
    for need, reason in reasons.items():
        lacking = [name for name in names if name in _NEEDS[need]]
        names = [name for name in names if name not in lacking]
        if lacking and config.only is not None:
            raise ArcmaskError(f"{_listed(lacking)} of {config.checkpoint} needs {need}: {reason}")
        if lacking:
            verb = "needs" if len(lacking) == 1 else "need"
            left_out.append(f"skipped {_listed(lacking)}, which {verb} {need}: {reason}")
    if corpus is None and "norms" in names:
        left_out.append("norms are not compared with frequencies: pass --data")
    return names, left_out


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _open(config: InspectConfig) -> Model:
    """Load the model in evaluation mode, in float32 or wider, so that rounding is not measured."""
    denoiser = load_for_use(config.checkpoint, mask_id=config.mask_id)
    if denoiser.table.dtype in (torch.bfloat16, torch.float16):
        denoiser.float()
    return denoiser.eval()


def _ready(denoiser: Denoiser) -> Denoiser:
    """Return a denoiser in evaluation mode, if it has modes."""
    return denoiser.eval() if isinstance(denoiser, nn.Module) else denoiser


def _rows(config: InspectConfig, corpus: RowCorpus, denoiser: Denoiser, tokens: int) -> Rows:
    """Return rows of text (N, L) that the seed chooses, of so many tokens; raise if the corpus does not fit."""
    check_corpus(corpus, denoiser)
    count = min(len(corpus), -(-tokens // corpus.length))
    return Batches(corpus, batch_size=count, seed=config.seed).batch(0)


def _start(run: Path | None, settings: dict[str, Any]) -> Confidence:
    """Return the confidence at the start of a run; without a run, the paper's."""
    with interpreting((run or Path()) / CONFIG, "the settings of a training run"):
        if settings.get("fixed_weight") is not None:
            return Confidence(fixed=settings["fixed_weight"])
        return Confidence(**{name: settings[name] for name in ("scale", "centre", "steepness") if name in settings})
