"""Run folders as records: an experiment of arms x seeds x budgets, or one training run.

Knows the files and their layout, and what of them is missing; nothing of tables or figures.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from arcmask.errors import ArcmaskError

SHOWN = 4  # samples of a cell
_OPERATORS = ("none", "linear", "renormalized", "spherical", "spherical-euclidean")


@dataclass(frozen=True)
class Score:
    """A value with its bootstrap interval over samples, and all that it depends on."""

    value: float
    interval: tuple[float, float] | None
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """A training run: its settings, and a record for each step that was done."""

    folder: Path
    settings: Mapping[str, Any]
    records: list[dict[str, Any]]

    @property
    def done(self) -> int:
        """The last step that has a record."""
        return self.records[-1]["step"] if self.records else 0


@dataclass(frozen=True)
class Arm:
    """One feedback configuration of an experiment."""

    name: str
    label: str
    train: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """All that a folder of `arcmask reproduce` holds at this moment. Cells that are not finished are not in it."""

    folder: Path
    plan: Mapping[str, Any]
    arms: dict[str, Arm]
    seeds: list[int]
    budgets: list[int]
    baseline: str | None
    scores: dict[tuple[str, int, int], dict[str, Score]]  # by arm, seed and budget
    counts: dict[tuple[str, int, int], int]  # samples that were scored
    samples: dict[tuple[str, int, int], list[dict[str, Any]]]  # the first of them
    trainings: dict[tuple[str, int], Training]
    likelihoods: dict[tuple[str, int], dict[str, dict[str, float]]]
    inspected: dict[str, Any] = field(default_factory=dict)  # the base's diagnostics: name of a figure -> its data

    @property
    def is_paper(self) -> bool:
        """Whether the paper's values may stand beside ours."""
        return self.plan.get("protocol") == "paper"

    def budget_label(self, steps: int) -> str:
        """Steps as a share of the length, as the paper writes them."""
        length = self.plan.get("length")
        return f"{Fraction(steps, length)} ({steps})" if length else str(steps)

    def missing(self) -> list[str]:
        """What the plan asked for and is not there, a line for each arm and seed; empty if all of it is."""
        lines = []
        for arm in self.arms.values():
            for seed in self.seeds:
                parts = self._missing_in(arm, seed)
                if parts:
                    lines.append(f"{arm.label}, seed {seed}: {'; '.join(parts)}")
        return lines

    def _missing_in(self, arm: Arm, seed: int) -> list[str]:
        parts = []
        training, steps = self.trainings.get((arm.name, seed)), arm.train.get("steps")
        if training is None:
            parts.append("training")
        elif steps is not None and training.done < steps:
            parts.append(f"training after step {training.done} of {steps}")
        if (arm.name, seed) not in self.likelihoods:
            parts.append("held-out likelihood")
        for what, there in (("samples", self.samples), ("scores", self.scores)):
            absent = [str(budget) for budget in self.budgets if (arm.name, seed, budget) not in there]
            if absent:
                parts.append(f"{what} at T = {', '.join(absent)}")
        asked = self.plan.get("samples")
        for budget in self.budgets:
            count = self.counts.get((arm.name, seed, budget))
            if asked is not None and count is not None and count != asked:
                parts.append(f"at T = {budget} {count} of {asked} samples are scored")
        return parts


def open_run(folder: Path) -> Experiment | Training:
    """What the folder holds; one sentence if it is no run, or if nothing in it is finished."""
    if not folder.is_dir():
        raise ArcmaskError(f"there is no folder {folder}")
    if (folder / "plan.json").is_file():
        return _open_experiment(folder)
    if (folder / "config.yaml").is_file():
        training = open_training(folder)
        if not training.records:
            raise ArcmaskError(f"the run {folder} has no finished step yet, so that there is nothing to report")
        return training
    raise ArcmaskError(
        f"{folder} is no run: it has neither the plan.json of a reproduction nor a training's config.yaml"
    )


def open_training(folder: Path) -> Training:
    """A folder of `arcmask train`."""
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ArcmaskError(f"{folder / 'config.yaml'} cannot be read") from error
    if not isinstance(settings, dict):
        raise ArcmaskError(f"{folder / 'config.yaml'} holds no settings")
    return Training(folder, settings, read_lines(folder / "metrics.jsonl", "step"))


def read_lines(path: Path, key: str) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines. One that is being written at its end is left out."""
    if not path.is_file():
        return []
    *whole, _ = path.read_text().split("\n")
    return [_record(line, key, path, number) for number, line in enumerate(whole, 1)]


def _first_samples(path: Path) -> list[dict[str, Any]]:
    """Those of the first indices, wherever they stand; a cell may hold thousands, which are not all read."""
    found: list[dict[str, Any]] = []
    with path.open() as file:
        for number, line in enumerate(file, 1):
            record = _record(line, "index", path, number) if line.endswith("\n") else {"index": SHOWN}
            if record["index"] < SHOWN:
                found.append(record)
            if len(found) == SHOWN:
                break
    return sorted(found, key=lambda record: record["index"])


def _record(line: str, key: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        record[key]
    except (ValueError, KeyError, TypeError) as error:
        raise ArcmaskError(f"{path}, line {number}, is not a record with a {key}") from error
    return record


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArcmaskError(f"{path} is not JSON that can be read") from error


def _open_experiment(folder: Path) -> Experiment:
    plan = _read_json(folder / "plan.json")
    try:
        arms = {name: Arm(name, given.get("label", name), given["train"]) for name, given in plan["arms"].items()}
        seeds, budgets = [int(seed) for seed in plan["seeds"]], sorted(int(steps) for steps in plan["budgets"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArcmaskError(f"{folder / 'plan.json'} is no plan of arms, seeds and budgets") from error
    baseline = plan.get("baseline")
    arms = {arm.name: arm for arm in sorted(arms.values(), key=lambda arm: (arm.name != baseline, *_order(arm)))}
    if baseline is not None and baseline not in arms:
        raise ArcmaskError(f"{folder / 'plan.json'} names the baseline {baseline!r}; its arms are: {', '.join(arms)}")
    found = Experiment(folder, plan, arms, seeds, budgets, baseline, {}, {}, {}, {}, {}, _inspected(folder))
    for arm in arms:
        for seed in seeds:
            _read_seed(found, arm, seed)
    if not found.scores and not any(training.records for training in found.trainings.values()):
        raise ArcmaskError(f"the experiment {folder} has no finished cell yet, so that there is nothing to report")
    return found


def _order(arm: Arm) -> tuple[Any, ...]:
    """Where an arm stands among others: by operator, fixed weights before the learned one, then the other settings.

    The plan's own order is not known: its file is written with sorted keys.
    """
    operator, fixed = arm.train.get("operator"), arm.train.get("fixed_weight")
    place = _OPERATORS.index(operator) if operator in _OPERATORS else len(_OPERATORS)
    return place, fixed is None, fixed or 0.0, arm.train.get("top_k", 0), arm.train.get("karcher_steps", 0), arm.name


def _read_seed(found: Experiment, arm: str, seed: int) -> None:
    home = found.folder / arm / f"seed-{seed}"
    if (home / "train" / "config.yaml").is_file():
        found.trainings[arm, seed] = open_training(home / "train")
    if (home / "likelihood.json").is_file():
        found.likelihoods[arm, seed] = _read_json(home / "likelihood.json")
    for budget in found.budgets:
        cell = home / f"steps-{budget}"
        if (cell / "samples.jsonl").is_file():
            found.samples[arm, seed, budget] = _first_samples(cell / "samples.jsonl")
        if (cell / "scores.json").is_file():
            entry = _read_json(cell / "scores.json")
            found.scores[arm, seed, budget] = _scores(entry, cell / "scores.json")
            found.counts[arm, seed, budget] = entry.get("count")


def _scores(entry: Any, path: Path) -> dict[str, Score]:
    found = {}
    try:
        for name, score in entry["scores"].items():
            if score["value"] is None:  # asked for, and not to be had from these samples
                continue
            interval = score.get("interval")
            details = {key: value for key, value in score.items() if key not in ("value", "interval")}
            found[name] = Score(
                float(score["value"]), None if interval is None else (float(interval[0]), float(interval[1])), details
            )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ArcmaskError(f"{path} does not hold scores, each with a value and an interval") from error
    return found


def _inspected(folder: Path) -> dict[str, Any]:
    return {path.stem: _read_json(path) for path in sorted((folder / "base" / "inspect").glob("*.json"))}
