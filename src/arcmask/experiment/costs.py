"""Estimate what a plan takes: time from one measured step, disk and memory from counts."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from arcmask.checkpoint import load
from arcmask.data import open_prepared
from arcmask.diagnostics.inspection import curve_cells
from arcmask.downloads import NotFetchedError, offline
from arcmask.evaluation.evaluator import check_evaluator
from arcmask.experiment.fetches import describe_fetches
from arcmask.experiment.plan_checks import check_fit, check_plan
from arcmask.feedback import SoftMask
from arcmask.model import Model, best_device
from arcmask.objective import TwoPass
from arcmask.settings.experiment import Arm, Plan, Tuning
from arcmask.settings.train import TrainConfig
from arcmask.training.checks import STATE_BYTES
from arcmask.training.dry_run import measure_step

# Parameters of evaluators that are known by name; any other is assumed to have the size of the first.
_EVALUATORS = {"smollm2-135m": 135e6, "gpt2": 124e6, "gpt2-large": 774e6}
_CHARACTERS_PER_TOKEN = 4
_SAMPLE_BYTES = 12  # per position: its id and its text
_SEARCH = {True: 20, False: 80}  # passes over the rows that fit one constant weight, or three confidence scalars


@dataclass(frozen=True)
class Costs:
    """Approximate seconds of each kind of stage, on this machine with one process."""

    plan: Plan
    forward: float  # seconds per position of a forward pass
    plain: float  # seconds per position of a training step without feedback
    with_feedback: float  # seconds per position of a training step with feedback
    parameters: int

    @classmethod
    def measure(cls, plan: Plan, model: Model) -> "Costs":
        """Measure one small batch of random tokens through the base, on the device that trains."""
        length = plan.generation.length
        sizes = [config.micro_batch for config in plan.trainings] or [plan.generation.batch_size]
        parameters = sum(parameter.numel() for parameter in model.parameters())
        objective = TwoPass(model, SoftMask()).to(best_device())
        rows = torch.randint(0, model.mask_id, (min(*sizes, 8), length))
        plain, with_feedback = (seconds / rows.numel() for seconds in measure_step(objective, rows))
        # The draft pass is the difference, which noise can make zero or negative.
        return cls(plan, max(with_feedback - plain, plain / 4), plain, max(with_feedback, plain), parameters)

    def training(self, config: TrainConfig) -> float:
        """Return the seconds of one training run."""
        config = config.computed(has_held_out=True)
        is_plain, length = config.operator == "none", self.plan.generation.length
        share = 0.0 if is_plain else config.gate_probability
        step = config.batch_size * length * (self.plain * (1 - share) + self.with_feedback * share)
        validations = config.steps // int(config.validate_every) if config.validate_every else 0
        passes = 1 if is_plain else 3
        return config.steps * step + validations * config.validation_rows * length * self.forward * passes

    def tuning(self, tuning: Tuning) -> float:
        """Return the seconds of fitting an arm's feedback, and of measuring its gain."""
        rows = tuning.rows * (1 + _SEARCH[tuning.fixed]) + 2 * self.plan.likelihood_rows
        return rows * self.plan.generation.length * self.forward

    def inspection(self) -> float:
        """Return the seconds of inspecting the base: nine times of 2,048 tokens, its curves, and the figures."""
        config, length = self.plan.inspection(Path()), self.plan.generation.length
        sizes = {"gain": config.gain_tokens, "generation": config.samples * length * config.steps}
        tokens = 9 * 2048 + sum(sizes[name] * count for name, count in curve_cells(config).items())
        return tokens * self.forward + 5

    def likelihood(self) -> float:
        """Return the seconds of one held-out likelihood."""
        return self.plan.likelihood_rows * self.plan.generation.length * 3 * self.forward

    def sampling(self, budget: int) -> float:
        """Return the seconds of one cell's samples."""
        return self.plan.generation.samples * self.plan.generation.length * budget * self.forward

    def scoring(self) -> float:
        """Return the seconds of one cell's scores."""
        generation = self.plan.generation
        names = [name for name in (generation.evaluator, generation.features) if name is not None]
        tokens = generation.samples * generation.length / (_CHARACTERS_PER_TOKEN if self._is_characters else 1)
        return tokens * self.forward * sum(_EVALUATORS.get(name, 135e6) for name in names) / self.parameters + 0.1

    @property
    def _is_characters(self) -> bool:
        plan = self.plan
        tokenizer = open_prepared(plan.data).index.tokenizer if plan.prepare is None else plan.prepare.tokenizer
        return tokenizer == "text8"

    def total(self) -> float:
        """Return the seconds of all stages."""
        plan = self.plan
        tuning = sum(self.tuning(arm.tune) for arm in plan.arms.values() if arm.tune is not None)
        training = sum(self.training(config) for config in plan.trainings) * len(plan.seeds)
        generation = sum(self.sampling(budget) + self.scoring() for budget in plan.budgets)
        cells = len(plan.arms) * len(plan.seeds) * (self.likelihood() + generation)
        return self.inspection() + tuning + training + cells


class Clock:
    """Time left, from the estimated costs of all stages, corrected by the time that the first of them took."""

    def __init__(self, costs: list[float]) -> None:
        self.costs = costs
        self._start = time.monotonic()

    def left(self, done: int) -> str:
        """Describe the time left after `done` stages."""
        expected, rest = sum(self.costs[:done]), sum(self.costs[done:])
        elapsed = time.monotonic() - self._start
        # The estimate counts as a tenth of the whole, so elapsed time outweighs it as stages are done.
        prior = 0.1 * (expected + rest)
        rate = (elapsed + prior) / (expected + prior) if expected + prior > 0 else 1.0
        return f"about {format_duration(rest * rate)} left"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def describe(plan: Plan, folder: str | Path | None = None) -> str:
    """Check a plan as `reproduce` does, and describe it and what it takes. Nothing is trained, fetched or written."""
    with offline():
        return _describe(plan, plan.folder if folder is None else Path(folder))


def _describe(plan: Plan, folder: Path) -> str:
    check_plan(plan, folder)
    for name in (plan.generation.evaluator, plan.generation.features) if plan.budgets else ():
        if name is not None:
            check_evaluator(name)
    try:
        base = None if plan.parameters is not None else load(plan.base)
    except NotFetchedError:
        base = None
    check_fit(plan, folder, base)
    generation, trains = plan.generation, plan.trainings
    runs = len(trains) * len(plan.seeds)
    tokens = sum(config.steps * config.batch_size for config in trains) * len(plan.seeds) * generation.length
    samples = len(plan.arms) * len(plan.seeds) * len(plan.budgets) * generation.samples
    lines = [f"{plan.title} ({plan.recipe}), from {plan.base} on {plan.data}"]
    lines += [f"  {name}: {arm.label}, {_describe_arm(arm, generation.length)}" for name, arm in plan.arms.items()]
    lines.append(f"seeds {', '.join(map(str, plan.seeds))}: {runs} training runs, {tokens:,} tokens in all")
    if plan.budgets:
        lines.append(
            f"{generation.samples:,} samples at each of {', '.join(map(str, plan.budgets))} denoising steps, "
            f"{samples:,} in all; evaluator {generation.evaluator or 'none'}, MAUVE features "
            f"{generation.features or 'none'}"
        )
    costs = None if base is None else Costs.measure(plan, base)
    parameters = plan.parameters if costs is None else costs.parameters
    if parameters is not None:
        state, weights = STATE_BYTES * parameters / 1e9, 4 * parameters / 1e9
        tuned = sum(arm.tune is not None for arm in plan.arms.values())
        checkpoints = runs * max((config.keep for config in trains), default=0) * state + tuned * weights
        texts = samples * generation.length * _SAMPLE_BYTES / 1e9
        memory = f"{weights:.2f} GB per process for weights"
        if trains:
            memory = f"{state:.2f} GB per process for weights, gradients, averages and moments"
        lines.append(
            f"disk: {checkpoints + texts:.1f} GB (checkpoints {checkpoints:.1f}, samples {texts:.1f}); memory: {memory}"
        )
    lines.append(describe_fetches(plan))
    if costs is None:
        lines.append(f"time: not estimated, since {plan.base} is fetched only when it is trained")
    else:
        lines.append(f"time: about {format_duration(costs.total())} on this machine, from one measured step")
    return "\n".join(lines)


def _describe_arm(arm: Arm, length: int) -> str:
    if arm.train is not None:
        return f"{arm.train.steps:,} steps of {arm.train.batch_size} x {length} tokens"
    return "not trained" if arm.tune is None else f"not trained, fitted to {arm.tune.rows:,} rows"
