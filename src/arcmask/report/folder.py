"""Read run folders into records: an experiment of arms, seeds and budgets, or one training run.

This module knows which files a run has and what is missing. It knows nothing about tables or figures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from arcmask import run_folder
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Operator
from arcmask.report.wording import listed
from arcmask.run_folder import (
    CONFIG,
    INSPECTION,
    LIKELIHOOD,
    METRICS,
    PLAN,
    SAMPLES,
    SCORES,
    TIMING,
    TRAINING,
    TUNED,
    cell_folder,
    interpreting,
)

Kind = Literal["base", "tuned", "trained"]
SHOWN = 4  # samples per cell
_LARGEST = 1e305
_LEARNED = ", learned weight"  # at the end of a label


@dataclass(frozen=True)
class Score:
    """A score, its bootstrap interval over samples, and the settings that it depends on."""

    value: float
    interval: tuple[float, float] | None
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """A training run: its settings, and one record per finished step."""

    folder: Path
    settings: Mapping[str, Any]
    records: list[dict[str, Any]]
    sets: dict[str, tuple[int, dict[str, Score]]] = field(default_factory=dict)  # count and scores by source
    bounds: dict[str, dict[str, Any]] = field(default_factory=dict)  # plain and two_pass, as `evaluate` writes them
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # the first SHOWN by file

    @property
    def done(self) -> int:
        """The last step that has a record."""
        return self.records[-1]["step"] if self.records else 0


@dataclass(frozen=True)
class Arm:
    """One configuration of an experiment: the base trained, with tuned feedback, or as it is.

    `train` is empty if the backbone is frozen. `colour` is set for operators from outside the package.
    """

    name: str
    label: str
    train: Mapping[str, Any] = field(hash=False)
    colour: str | None = None
    tune: Mapping[str, Any] | None = field(default=None, hash=False)
    temperature: float = 1.0  # of sampling

    @property
    def kind(self) -> Kind:
        """What was done to the base."""
        return "trained" if self.train else "base" if self.tune is None else "tuned"

    @property
    def operator(self) -> str:
        """The operator's name; of FILE.py:FUNCTION, the function's."""
        if self.kind == "base":
            return "none"
        settings = self.train or self.tune or {}
        return str(settings.get("operator", self.name)).rpartition(":")[2]

    @property
    def record(self) -> Operator | None:
        """The operator's entry in the registry, if it is part of the package."""
        return OPERATORS.get(self.operator)

    @property
    def has_feedback(self) -> bool:
        """Whether predictions are fed back at all."""
        return self.operator != "none"


@dataclass(frozen=True)
class Experiment:
    """The current content of a folder of `arcmask reproduce`. Unfinished cells are left out."""

    folder: Path
    plan: Mapping[str, Any]
    arms: dict[str, Arm]
    seeds: list[int]
    budgets: list[int]
    baseline: str | None
    inspected: dict[str, Any]  # the base model's diagnostics: name of a figure -> its data
    scores: dict[tuple[str, int, int], dict[str, Score]] = field(default_factory=dict)  # by arm, seed and budget
    counts: dict[tuple[str, int, int], int] = field(default_factory=dict)  # scored samples
    samples: dict[tuple[str, int, int], list[dict[str, Any]]] = field(default_factory=dict)  # the first SHOWN
    timings: dict[tuple[str, int, int], dict[str, float]] = field(default_factory=dict)  # calls and their seconds
    trainings: dict[tuple[str, int], Training] = field(default_factory=dict)
    likelihoods: dict[tuple[str, int], dict[str, dict[str, float]]] = field(default_factory=dict)
    ablations: dict[str, Arm] = field(default_factory=dict)  # only trained, with the first seed

    @property
    def is_paper(self) -> bool:
        """Whether the experiment follows the paper's protocol, so that the paper's values can be shown with ours."""
        return self.plan.get("protocol") == "paper"

    def budget_label(self, steps: int) -> str:
        """Return the steps as a fraction of the length, as the paper writes them."""
        has_prompts = self.plan.get("ends") or self.plan.get("prompts")
        length = None if has_prompts else self.plan.get("length")  # with prompts, it is the longest
        return f"{Fraction(steps, length)} ({steps})" if length else str(steps)

    def checkpoint(self, arm: str, seed: int) -> str:
        """Return the checkpoint that the samples of an arm and a seed come from."""
        folders = {
            "base": self.plan.get("base"),
            "tuned": self.folder / arm / TUNED,
            "trained": cell_folder(self.folder, arm, seed) / TRAINING,
        }
        return str(folders[self.arms[arm].kind])

    def missing(self) -> list[str]:
        """List what the plan asks for and the folder does not have. Seeds of an arm that lack the same share a line."""
        seeds: dict[tuple[str, str], list[int]] = {}
        for arm in self.arms.values():
            for seed in self.seeds:
                seeds.setdefault((arm.label, "; ".join(self._missing_in(arm, seed))), []).append(seed)
        lines = [
            f"{label}, seed{'s' * (len(some) > 1)} {listed(some)}: {parts}"
            for (label, parts), some in seeds.items()
            if parts
        ]
        for arm in self.ablations.values():
            absent = self._missing_training(arm, self.seeds[0])
            lines += [f"{arm.label}, an ablation: {absent[0]}"] if absent else []
        return lines

    def _missing_training(self, arm: Arm, seed: int) -> list[str]:
        training, steps = self.trainings.get((arm.name, seed)), arm.train.get("steps")
        if training is None:
            return ["training"] if arm.kind == "trained" else []
        is_short = steps is not None and training.done < steps
        return [f"training after step {training.done} of {steps}"] if is_short else []

    def _missing_in(self, arm: Arm, seed: int) -> list[str]:
        parts = self._missing_training(arm, seed)
        if (arm.name, seed) not in self.likelihoods:
            parts.append("held-out likelihood")
        for name, cells in (("samples", self.samples), ("scores", self.scores)):
            absent = [str(budget) for budget in self.budgets if (arm.name, seed, budget) not in cells]
            if absent:
                parts.append(f"{name} at T = {', '.join(absent)}")
        planned = self.plan.get("samples")
        for budget in self.budgets:
            count = self.counts.get((arm.name, seed, budget))
            if planned is not None and count is not None and count != planned:
                parts.append(f"only {count} of {planned} samples scored at T = {budget}")
        return parts


def read_run(folder: Path) -> Experiment | Training:
    """Read a folder of `arcmask reproduce` or `arcmask train`; raise if it is neither, or has nothing to report."""
    if not folder.is_dir():
        raise ArcmaskError(f"there is no folder {folder}")
    if (folder / PLAN).is_file():
        return _read_experiment(folder)
    if (folder / CONFIG).is_file():
        training = _read_training(folder)
        if not training.records:
            raise ArcmaskError(f"the run {folder} has no finished step yet, so there is nothing to report")
        return _with_scores(training)
    raise ArcmaskError(f"{folder} is not a run: it has neither {PLAN} (arcmask reproduce) nor {CONFIG} (arcmask train)")


def _read_training(folder: Path) -> Training:
    settings = run_folder.read_settings(folder / CONFIG, run_folder.read_yaml)
    records = run_folder.read_lines(folder / METRICS, "step")
    with interpreting(folder / METRICS, "metrics"):
        for record in records:
            _check_numbers(record.values())
    return Training(folder, settings, records)


def _with_scores(training: Training) -> Training:
    """Add the scores and samples that were written into the folder of a run."""
    folder, sets, bounds = training.folder, {}, {}
    if (folder / SCORES).is_file():
        entry = run_folder.read_settings(folder / SCORES)
        with interpreting(folder / SCORES, "the sets and scores of arcmask evaluate"):
            for source, one in entry.get("sets", {}).items():
                sets[source] = int(one["count"]), _scores(one, folder / SCORES)
            found = entry.get("likelihood", {})
            bounds = _checked_bounds({way: found[way] for way in ("plain", "two_pass") if found.get(way)})
    files = [folder / SAMPLES, *sorted((folder / "samples").glob("*.jsonl"))]
    samples = {str(file.relative_to(folder)): _first_samples(file) for file in files if file.is_file()}
    return replace(training, sets=sets, bounds=bounds, samples={name: some for name, some in samples.items() if some})


def _check_numbers(values: Iterable[Any]) -> None:
    """Raise unless every value is None or a number that can be computed with."""
    for value in values:
        if value is not None and not abs(value) < _LARGEST:
            raise ValueError(f"{value!r} is not a number below {_LARGEST:g}")


def _read_experiment(folder: Path) -> Experiment:
    plan = run_folder.read_settings(folder / PLAN)
    baseline = plan.get("baseline")
    with interpreting(folder / PLAN, "a plan with arms, seeds and budgets"):
        arms = _with_short_labels([_arm(name, entry) for name, entry in plan["arms"].items()])
        seeds, budgets = [int(seed) for seed in plan["seeds"]], sorted(int(steps) for steps in plan["budgets"])
        by_name = {arm.name: arm for arm in sorted(arms, key=lambda arm: (arm.name != baseline, *_order(arm)))}
        others = sorted((_arm(name, entry) for name, entry in plan.get("ablations", {}).items()), key=_order)
    if baseline is not None and baseline not in by_name:
        raise ArcmaskError(f"{folder / PLAN} names the baseline {baseline!r}; its arms are: {', '.join(by_name)}")
    inspected = {path.stem: run_folder.read_settings(path) for path in sorted((folder / INSPECTION).glob("*.json"))}
    experiment = Experiment(folder, plan, by_name, seeds, budgets, baseline, inspected)
    for arm in others:
        experiment.ablations[arm.name] = arm
        _read_training_of(experiment, arm.name, seeds[0])
    for name in by_name:
        for seed in seeds:
            _read_seed(experiment, name, seed)
    has_records = any(training.records for training in experiment.trainings.values())
    if not (experiment.scores or experiment.likelihoods or has_records):
        raise ArcmaskError(f"the experiment {folder} has no finished cell yet, so there is nothing to report")
    return experiment


def _arm(name: str, entry: Mapping[str, Any]) -> Arm:
    """Build an arm from its entry in the plan. An entry without `tune` and `temperature` is a trained arm's."""
    temperature = float(entry.get("temperature", 1.0))
    return Arm(
        name, entry.get("label", name), entry["train"] or {}, entry.get("colour"), entry.get("tune"), temperature
    )


def _with_short_labels(arms: list[Arm]) -> list[Arm]:
    """Leave out "learned weight" where all arms with feedback have one; the table of arms says so."""
    if not all(arm.label.endswith(_LEARNED) for arm in arms if arm.has_feedback):
        return arms
    return [replace(arm, label=arm.label.removesuffix(_LEARNED)) for arm in arms]


def _order(arm: Arm) -> tuple[Any, ...]:
    """Return the sort key of an arm: kind, operator, fixed weights before the learned one, then the other settings.

    The plan's own order is unknown, because its file has sorted keys.
    """
    names, weight = list(OPERATORS), arm.train.get("fixed_weight")
    operator = (names.index(arm.operator), "") if arm.operator in names else (len(names), arm.operator)
    settings = (arm.train.get("top_k", 0), arm.train.get("karcher_steps", 0))
    kind = get_args(Kind).index(arm.kind)
    return kind, *operator, weight is None, weight or 0.0, *settings, -arm.temperature, arm.name


def _read_training_of(experiment: Experiment, arm: str, seed: int) -> None:
    folder = cell_folder(experiment.folder, arm, seed) / TRAINING
    if (folder / CONFIG).is_file():
        experiment.trainings[arm, seed] = _read_training(folder)


def _read_seed(experiment: Experiment, arm: str, seed: int) -> None:
    home = cell_folder(experiment.folder, arm, seed)
    _read_training_of(experiment, arm, seed)
    if (home / LIKELIHOOD).is_file():
        experiment.likelihoods[arm, seed] = _bounds(home / LIKELIHOOD)
    for budget in experiment.budgets:
        cell = cell_folder(experiment.folder, arm, seed, budget)
        if (cell / SAMPLES).is_file():
            experiment.samples[arm, seed, budget] = _first_samples(cell / SAMPLES)
        if (cell / TIMING).is_file():
            timing = run_folder.read_settings(cell / TIMING)
            with interpreting(cell / TIMING, "the calls and seconds of samples"):
                experiment.timings[arm, seed, budget] = {key: float(timing[key]) for key in ("calls", "seconds")}
        if (cell / SCORES).is_file():
            entry = run_folder.read_json(cell / SCORES)
            experiment.scores[arm, seed, budget] = _scores(entry, cell / SCORES)
            experiment.counts[arm, seed, budget] = entry.get("count")


def _first_samples(path: Path) -> list[dict[str, Any]]:
    records = run_folder.iterate_lines(path, "index")
    # There may be thousands of samples in any order: stop as soon as the first ones are known.
    first = islice((record for record in records if record["index"] < SHOWN), SHOWN)
    return sorted(first, key=lambda record: record["index"])


def _bounds(path: Path) -> dict[str, dict[str, Any]]:
    """Read the held-out bounds of an arm: plain, and two_pass if it has feedback."""
    bounds = run_folder.read_settings(path)
    with interpreting(path, "held-out bounds"):
        return _checked_bounds(bounds)


def _checked_bounds(bounds: dict[str, Any]) -> dict[str, Any]:
    for bound in filter(None, bounds.values()):
        names = ("nats", "perplexity", "bits_per_byte", "standard_error", "rows")
        _check_numbers(bound.get(name) for name in names)
    return bounds


def _scores(entry: Any, path: Path) -> dict[str, Score]:
    scores = {}
    with interpreting(path, "scores, each with a value and an interval"):
        for name, score in entry["scores"].items():
            if score["value"] is None:  # the score does not exist for these samples
                continue
            interval = score.get("interval")
            bounds = None if interval is None else (float(interval[0]), float(interval[1]))
            details = {key: value for key, value in score.items() if key not in ("value", "interval")}
            scores[name] = Score(float(score["value"]), bounds, details)
            _check_numbers((score["value"], *(bounds or ())))
    return scores
