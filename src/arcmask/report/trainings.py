"""Arrange training runs as chapters: one run with its curves, numbers and next commands, or several over each other."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from arcmask.report.document import (
    Block,
    Chapter,
    Panel,
    Section,
    figure_block,
    sample_text,
    settings_block,
    table_blocks,
)
from arcmask.report.folder import SHOWN, Training
from arcmask.report.step_metrics import at_step, window
from arcmask.report.training_figures import run_figures
from arcmask.report.training_tables import run_score_tables, run_table, settings_table
from arcmask.report.wording import count, fixed, listed
from arcmask.run_folder import SAMPLES, SCORES

_FACTS = {
    "init": "Start",
    "data": "Data",
    "operator": "Operator",
    "batch_size": "Batch",
    "learning_rate": "Learning rate",
    "warm_up": "Warm-up steps",
    "curve": "Rate curve",
    "gate_probability": "Gate",
    "seed": "Seed",
}


def training_chapter(training: Training, name: str) -> Chapter:
    """Return the chapter of a folder of `arcmask train`."""
    steps = training.settings.get("steps")
    scope = f"{training.done:,} of {steps:,} steps are done." if steps else f"{training.done:,} steps are done."
    last = Block("code", json.dumps(training.records[-1], indent=1), items=["Metrics of the last step"])
    sections = [
        Section("found", "Main results", [Block("lead", _reached(training)), *_missing(training)]),
        Section("run", "What was run", [Block("facts", items=_facts(training))]),
        Section("training", "Training", figure_block(run_figures({name: training})) + _numbers(name, training)),
        Section("scores", "Scores", table_blocks(*run_score_tables(training))),
        Section("samples", "Samples", _samples(training)),
        Section("next", "What to do next", _next(training)),
        Section("repeat", "Settings", [settings_block(training.settings, "Training settings"), last]),
    ]
    kept = [section for section in sections if section.blocks]
    return Chapter(name, training.folder.resolve().name, f"One training run: {scope}", kept)


def overlay_chapter(runs: Mapping[str, Training]) -> Chapter:
    """Return the chapter that shows several training runs in the same figures."""
    tables = table_blocks(run_table(runs), settings_table(runs))
    sections = [
        Section("curves", "Curves", figure_block(run_figures(runs))),
        Section("numbers", "Numbers and settings", tables),
    ]
    kept = [section for section in sections if section.blocks]
    return Chapter("training-runs", "Training runs over each other", f"{listed(runs)}.", kept)


def _numbers(name: str, training: Training) -> list[Block]:
    return table_blocks(run_table({name: training}))


def _reached(training: Training) -> str:
    """Say in a few sentences what the run has reached."""
    metrics, last = at_step(training, training.done), window(training.done)
    over = f", averaged over the last {count(last, 'step')}" if last > 1 else ""
    parts = [
        f"After {count(training.done, 'step')} the training perplexity is {fixed(metrics.get('perplexity'), 3)}{over}."
    ]
    plain, fed = (metrics.get(f"validation_perplexity_{way}") for way in ("plain", "feedback"))
    if plain is not None:
        with_feedback = "" if fed is None else f" without feedback and {fixed(fed, 3)} with it"
        parts.append(f"On held-out rows it is {fixed(plain, 3)}{with_feedback}.")
    if training.settings.get("operator") != "none" and "weight" in metrics:
        weight = metrics["weight"]
        kind = "learned weight" if training.settings.get("fixed_weight") is None else "fixed weight"
        text = f"The mean {kind} is {fixed(weight, 3) if weight >= 0.001 else f'{weight:.1e}'}"
        angle = metrics.get("angle")
        parts.append(text + ("." if angle is None else f"; mask and predicted mean are {fixed(angle, 1)}\u00b0 apart."))
    return " ".join(parts)


def _missing(training: Training) -> list[Block]:
    steps = training.settings.get("steps")
    if not steps or training.done >= steps:
        return []
    lines = [f"training after step {training.done:,} of {steps:,}; run the same command again to resume it"]
    return [Block("notice", "Missing from this report", items=lines)]


def _facts(training: Training) -> list[tuple[str, str]]:
    settings = training.settings
    shown = [(text, str(settings[key])) for key, text in _FACTS.items() if settings.get(key) is not None]
    if settings.get("operator") != "none":
        weight = settings.get("fixed_weight")
        shown.append(("Weight", "learned" if weight is None else f"fixed at {weight}"))
    speeds = [record["tokens_per_second"] for record in training.records if record.get("tokens_per_second")]
    if speeds:
        shown.append(("Speed", f"{sorted(speeds)[len(speeds) // 2]:,.0f} tokens per second (median)"))
    return shown


def _samples(training: Training) -> list[Block]:
    """Show the samples in the run's folder; files with the same steps and seed stand side by side."""
    if not training.samples:
        return []
    files, by_cell = list(training.samples), dict[tuple[int, int], dict[str, dict[int, str]]]()
    for file, records in training.samples.items():
        cell = int(records[0].get("steps", 0)), int(records[0].get("seed", 0))
        by_cell.setdefault(cell, {})[file] = {int(record["index"]): sample_text(record) for record in records}
    panels = []
    for (steps, seed), texts in sorted(by_cell.items()):
        indices = sorted({index for by_index in texts.values() for index in by_index})
        rows = [(index, [texts.get(file, {}).get(index) for file in files]) for index in indices]
        panels.append(Panel(steps, seed, rows))
    text = f"They are the first {SHOWN} samples of each file and were not selected."
    return [Block("text", text), Block("samples", items=[files, panels])]


def _next(training: Training) -> list[Block]:
    """Return the commands that lead on from the run: those that are not done yet, and two ways to look into it."""
    run, data, operator = str(training.folder), training.settings.get("data"), str(training.settings.get("operator"))
    is_own = ".py:" in operator  # a checkpoint does not import the file of an operator; it is named again
    commands: list[list[Any]] = []
    if not training.samples:
        own = ["--feedback", operator] if is_own else []
        commands.append(["sample", run, "--num", 64, "--out", f"{run}/{SAMPLES}", *own])
    if not (training.sets and training.bounds) and data is not None:
        files = [f"{run}/{name}" for name in training.samples] or [f"{run}/{SAMPLES}"]
        own = ["--operator", operator] if is_own else []
        inputs = ["--reference", data, "--checkpoint", run, "--data", data, *own]
        commands.append(["evaluate", *files, *inputs, "--out", f"{run}/{SCORES}"])
    lead = "Sample and score the run, put both into this report, look" if commands else "Look"
    commands += [["report", run]] if commands else []
    commands += [["inspect", run], ["explore", run, *(["--feedback", operator] if is_own else [])]]
    text = "\n".join(shlex.join(["arcmask", *map(str, words)]) for words in commands)
    return [Block("text", f"{lead} at its geometry, and watch a sample form:"), Block("code", text)]
