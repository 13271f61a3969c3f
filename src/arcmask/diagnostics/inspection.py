"""`arcmask inspect`: every diagnostic that can be had, into one folder that appears whole.

Knows where a model, its text and its run lie; what is measured, and how it looks, is known to the other files.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from math import radians
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from arcmask import figures
from arcmask.checkpoint import load_for_use
from arcmask.data import Batches, PreparedCorpus, open_prepared, read_index
from arcmask.diagnostics.accuracy import top_accuracy
from arcmask.diagnostics.angles import Angles, angles_over_time
from arcmask.diagnostics.cost import blend_costs
from arcmask.diagnostics.drawing import (
    draw_accuracy,
    draw_angles,
    draw_confidence,
    draw_cost,
    draw_karcher,
    draw_norms,
    draw_paths,
    draw_sphere,
    draw_training,
)
from arcmask.diagnostics.karcher import karcher_distances
from arcmask.diagnostics.norms import norms_by_rank
from arcmask.diagnostics.paths import LerpNorms, SpherePaths, lerp_norms, sphere_paths
from arcmask.diagnostics.predictions import TIMES, Predictions, predict
from arcmask.diagnostics.training import angles_over_training, find_data
from arcmask.diagnostics.weights import confidence_weights
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, find_operator
from arcmask.files import json_bytes, write_whole, written_whole
from arcmask.progress import Progress
from arcmask.run_folder import CONFIG, find_run, read_metrics, read_settings, read_yaml
from arcmask.settings.inspect import NAMES, InspectConfig

_PREPARED = "a folder that `arcmask prepare` made with the model's tokenizer"


@dataclass(frozen=True)
class Inspection:
    """What was written where: a sentence for each diagnostic, and one for each kind that is left out."""

    folder: Path
    readings: dict[str, str]
    left_out: list[str]


@dataclass(frozen=True)
class Subject:
    """A model, and what is known about it."""

    denoiser: Any
    predictions: list[Predictions]
    frequencies: Tensor | None
    metrics: list[dict[str, Any]]
    start: Confidence

    @property
    def table(self) -> Tensor:
        return self.denoiser.table.detach()

    @property
    def learned(self) -> Confidence | None:
        """The confidence that was trained; a model that was trained without feedback has none."""
        feedback = self.denoiser.feedback
        return None if feedback is None or feedback.operator == "none" else feedback.confidence

    @property
    def karcher_steps(self) -> int:
        return 3 if self.denoiser.feedback is None else self.denoiser.feedback.karcher_steps

    @property
    def top_k(self) -> int:
        return top_k_of(self.denoiser)

    @cached_property
    def angles(self) -> Angles:
        return angles_over_time(self.table, self.denoiser.mask_id, self.predictions, self.karcher_steps)

    @cached_property
    def paths(self) -> LerpNorms:
        return lerp_norms(self.table, self.denoiser.mask_id, self.predictions, self.learned or self.start)

    @property
    def sphere(self) -> SpherePaths:
        return sphere_paths(radians(self.angles.euclidean_mean), self.paths.mean_norm.median)


@dataclass(frozen=True)
class Diagnostic:
    """What it needs beside a model, how it is measured, how it is drawn."""

    needs: Literal["nothing", "text", "metrics"]
    measure: Callable[[Subject], Any]
    draw: Callable[[Any], figures.Figure]


DIAGNOSTICS = {
    "norms": Diagnostic("nothing", lambda s: norms_by_rank(s.table, s.denoiser.mask_id, s.frequencies), draw_norms),
    "angles": Diagnostic("text", lambda s: s.angles, draw_angles),
    "training": Diagnostic("metrics", lambda s: angles_over_training(s.metrics), draw_training),
    "paths": Diagnostic("text", lambda s: s.paths, draw_paths),
    "sphere": Diagnostic("text", lambda s: s.sphere, draw_sphere),
    "confidence": Diagnostic("text", lambda s: confidence_weights(s.predictions, s.start, s.learned), draw_confidence),
    "karcher": Diagnostic("text", lambda s: karcher_distances(s.table, s.predictions), draw_karcher),
    "accuracy": Diagnostic("text", lambda s: top_accuracy(s.predictions), draw_accuracy),
    "cost": Diagnostic(
        "nothing",
        lambda s: blend_costs(s.table, s.denoiser.mask_id, top_k=s.top_k, karcher_steps=s.karcher_steps),
        draw_cost,
    ),
}
assert tuple(DIAGNOSTICS) == NAMES


def inspect(config: InspectConfig) -> Inspection:
    """Measure, draw and write all that is possible, or all that the settings name."""
    for name in config.operators:
        find_operator(name)
    run = Path(config.run) if config.run is not None else find_run(config.checkpoint)
    settings = {} if run is None else read_settings(run / CONFIG, read_yaml)
    metrics = _metrics(config, run)
    corpus = _corpus(config, run, settings)
    names, left_out = _choose(config, corpus, metrics, settings)
    replaced = [f"{name}.{kind}" for name in NAMES for kind in ("png", "json")]
    with written_whole(config.folder, tuple(replaced)) as scratch:
        denoiser = _open(config)
        rows = None if corpus is None else _rows(config, corpus, denoiser)
        wanted = rows is not None and any(DIAGNOSTICS[name].needs == "text" for name in names)
        total = len(names) + (len(TIMES) if wanted else 0)
        with Progress("inspecting", unit="parts", total=total) as progress:
            predictions = []
            for time in TIMES if wanted else ():
                assert rows is not None
                predictions += predict(denoiser, rows, [time], top_k=top_k_of(denoiser), seed=config.seed)
                progress.advance(1)
            frequencies = None if corpus is None else corpus.frequencies
            subject = Subject(denoiser, predictions, frequencies, metrics, _start(settings))
            readings = {}
            for name in names:
                record = DIAGNOSTICS[name].measure(subject)
                readings[name] = record.reading
                drawn = DIAGNOSTICS[name].draw(record)
                figures.save(drawn, scratch / f"{name}.png", {"reading": record.reading, **asdict(record)})
                progress.advance(1)
        about = asdict(config) | {"run": run and str(run), "data": corpus and str(corpus.folder)}
        about |= {"split": corpus and corpus.split, "rows": None if rows is None else len(rows)}
        write_whole(scratch / "inspect.json", json_bytes(about | {"readings": readings, "left_out": left_out}))
        write_whole(scratch / "inspect.md", _page(config.checkpoint, readings, left_out).encode())
    return Inspection(folder=config.folder, readings=readings, left_out=left_out)


def top_k_of(denoiser: Any) -> int:
    """How many candidates the model's feedback takes; three, if it has none."""
    wanted = 3 if denoiser.feedback is None else denoiser.feedback.top_k
    return min(wanted, denoiser.table.shape[0] - 1)


def _metrics(config: InspectConfig, run: Path | None) -> list[dict[str, Any]]:
    """The lines with angles in them; none is an error if the run was named."""
    if run is None or (config.run is None and not (run / "metrics.jsonl").is_file()):
        return []
    fed = [line for line in read_metrics(run) if "angle" in line]
    if config.run is not None and "training" in config.names and not fed:
        raise ArcmaskError(f"the metrics of the run {run} have no angles: none of its steps used feedback")
    return fed


def _corpus(config: InspectConfig, run: Path | None, settings: dict[str, Any]) -> PreparedCorpus | None:
    """The held-out rows if there are any, of the folder that was given or of the run's."""
    folder = Path(config.data) if config.data is not None else run and find_data(run, settings)
    if folder is None:
        return None
    held_out = read_index(folder).splits["validation"].rows > 0
    return open_prepared(folder, "validation" if held_out else "train")


def _choose(
    config: InspectConfig, corpus: PreparedCorpus | None, metrics: list[dict[str, Any]], settings: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """The diagnostics that can be had, and a sentence for each kind that cannot; one that was asked for must be."""
    gone = f", and the run's own, {settings['data']}, is not here" if settings.get("data") and corpus is None else ""
    whys = {}
    if corpus is None:
        whys["text"] = f"text is needed{gone}; give --data, {_PREPARED}"
    if not metrics:
        whys["metrics"] = "the metrics of a run with feedback are needed; give --run"
    lacking = {need: [n for n in config.names if DIAGNOSTICS[n].needs == need] for need in whys}
    left_out = []
    for need, names in lacking.items():
        if not names:
            continue
        if config.only is not None:
            raise ArcmaskError(f"{_listed(names)} cannot be had from {config.checkpoint} alone: {whys[need]}")
        left_out.append(f"left out: {_listed(names)} ({whys[need]})")
    if corpus is None and "norms" in config.names:
        left_out.append("norms are not set against frequency: frequencies come with --data")
    without = {name for names in lacking.values() for name in names}
    return [name for name in config.names if name not in without], left_out


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _open(config: InspectConfig) -> Any:
    """The model, ready to be asked, in float32 or wider: what is measured here is not the rounding."""
    denoiser = load_for_use(config.checkpoint, mask_id=config.mask_id)
    denoiser.eval()
    if denoiser.table.dtype in (torch.bfloat16, torch.float16):
        denoiser.float()
    return denoiser


def _rows(config: InspectConfig, corpus: PreparedCorpus, denoiser: Any) -> Tensor:
    """Rows of text that the seed chooses, of a corpus that is seen to fit the model."""
    vocabulary = denoiser.table.shape[0]
    corpus.check_fits(vocab_size=vocabulary, mask_id=denoiser.mask_id, max_length=denoiser.max_length)
    if denoiser.tokenizer is not None:
        theirs, ours = corpus.tokenizer().inner.get_vocab(), denoiser.tokenizer.inner.get_vocab()
        if theirs != ours:
            raise ArcmaskError(
                f"the corpus in {str(corpus.folder)!r} was made with another tokenizer ({corpus.index.tokenizer}) than "
                f"the model's ({denoiser.tokenizer.name}): their ids stand for different tokens"
            )
    count = min(len(corpus), -(-config.tokens // corpus.length))
    return Batches(corpus, batch_size=count, seed=config.seed).batch(0)


def _start(settings: dict[str, Any]) -> Confidence:
    """The confidence as a run starts with it; without a run, the paper's."""
    if settings.get("fixed_weight") is not None:
        return Confidence(fixed=settings["fixed_weight"])
    return Confidence(**{name: settings[name] for name in ("scale", "centre", "steepness") if name in settings})


def _page(checkpoint: str, readings: dict[str, str], left_out: list[str]) -> str:
    """All figures with their sentences, as Markdown."""
    parts = [f"# {checkpoint}"]
    parts += [f"## {name}\n\n{reading}\n\n![{name}]({name}.png)" for name, reading in readings.items()]
    return "\n\n".join([*parts, *left_out]) + "\n"
