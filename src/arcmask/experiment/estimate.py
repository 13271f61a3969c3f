"""What a plan takes: time from one measured step, disk and memory from counts. Estimates, said as such."""

import time
from dataclasses import dataclass

import torch

from arcmask.checkpoint import load
from arcmask.data import open_prepared
from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask
from arcmask.model import best_device
from arcmask.objective import TwoPass
from arcmask.settings.experiment import Plan
from arcmask.settings.train import TrainConfig
from arcmask.training.estimate import measure_step

# Parameters of evaluators that are known by name; another is taken to be of the size of the first.
_EVALUATORS = {"smollm2-135m": 135e6, "gpt2": 124e6, "gpt2-large": 774e6}
_CHARACTERS_IN_A_TOKEN = 4


@dataclass(frozen=True)
class Costs:
    """Seconds of each kind of stage, about, on this machine with one process."""

    plan: Plan
    forward: float  # a position's
    plain: float  # a position's, in training without feedback
    fed: float  # and with
    parameters: int

    @classmethod
    def measured(cls, plan: Plan) -> "Costs":
        """From one small batch of made-up tokens through the base, where training would run."""
        config, length = next(iter(plan.arms.values())).train, plan.generation.length
        model = load(plan.base)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        objective = TwoPass(model, SoftMask()).to(best_device())
        rows = torch.randint(0, model.mask_id, (min(config.micro_batch, 8), length))
        plain, with_feedback = (seconds / rows.numel() for seconds in measure_step(objective, rows))
        # The draft pass is the difference; on a noisy machine that can come out as nothing.
        return cls(plan, max(with_feedback - plain, plain / 4), plain, max(with_feedback, plain), parameters)

    def training(self, config: TrainConfig) -> float:
        share = 0.0 if config.operator == "none" else config.gate_probability
        positions = config.steps * config.batch_size * self.plan.generation.length
        validations = config.steps // config.validate_every * config.validation_rows if config.validate_every else 0
        validated = validations * self.plan.generation.length * self.forward * (1 if config.operator == "none" else 3)
        return positions * (self.plain * (1 - share) + self.fed * share) + validated

    def looking(self) -> float:
        """Nine times of 2,048 tokens, and drawing."""
        return 9 * 2048 * self.forward + 5

    def likelihood(self) -> float:
        return self.plan.likelihood_rows * self.plan.generation.length * 3 * self.forward

    def sampling(self, budget: int) -> float:
        return self.plan.generation.samples * self.plan.generation.length * budget * self.forward

    def scoring(self) -> float:
        how = self.plan.generation
        sizes = [_EVALUATORS.get(name, 135e6) for name in (how.evaluator, how.features) if name is not None]
        tokens = how.samples * how.length / (_CHARACTERS_IN_A_TOKEN if self._is_characters else 1)
        return tokens * self.forward * sum(sizes) / self.parameters + 0.1

    @property
    def _is_characters(self) -> bool:
        plan = self.plan
        tokenizer = open_prepared(plan.data).index.tokenizer if plan.prepare is None else plan.prepare.tokenizer
        return tokenizer == "text8"

    def total(self) -> float:
        """All stages."""
        plan = self.plan
        cells = len(plan.arms) * len(plan.seeds)
        trained = sum(self.training(arm.train) for arm in plan.arms.values()) * len(plan.seeds)
        generated = sum(self.sampling(budget) + self.scoring() for budget in plan.budgets)
        return self.looking() + trained + cells * (self.likelihood() + generated)


class Clock:
    """Time that is left, by the costs of what is to do, corrected by what the first of it took."""

    def __init__(self, costs: list[float]) -> None:
        self.costs = costs
        self._began = time.monotonic()

    def left(self, done: int) -> str:
        """For people, with so many stages done."""
        expected, rest = sum(self.costs[:done]), sum(self.costs[done:])
        taken = time.monotonic() - self._began
        # The first measured step stands for a tenth of the whole; the more was done, the more that counts.
        trust = 0.1 * (expected + rest)
        rate = (taken + trust) / (expected + trust) if expected + trust > 0 else 1.0
        return f"about {spoken(rest * rate)} left"


def spoken(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def describe(plan: Plan) -> str:
    """The plan for a person, with what it takes; nothing is trained or written."""
    how, runs = plan.generation, len(plan.arms) * len(plan.seeds)
    trains = [arm.train for arm in plan.arms.values()]
    tokens = sum(config.steps * config.batch_size for config in trains) * len(plan.seeds) * how.length
    lines = [f"{plan.title} ({plan.recipe}), from {plan.base} on {plan.data}"]
    lines += [
        f"  {name}: {arm.label}, {arm.train.steps:,} steps of {arm.train.batch_size} x {how.length} tokens"
        for name, arm in plan.arms.items()
    ]
    lines.append(f"seeds {', '.join(map(str, plan.seeds))}: {runs} training runs, {tokens:,} tokens in all")
    if plan.budgets:
        count = runs * len(plan.budgets) * how.samples
        budgets = ", ".join(map(str, plan.budgets))
        scored = f"evaluator {how.evaluator or 'none'}, MAUVE {f'by {how.features}' if how.features else 'left out'}"
        lines.append(f"{how.samples:,} samples at each of {budgets} denoising steps, {count:,} in all; {scored}")
    costs, excuse = _costs_or_excuse(plan)
    parameters = plan.parameters if costs is None else costs.parameters
    if parameters is not None:
        # Weights, raw weights, averages and two moments in float32; a sample is tokens and text.
        kept = runs * max(config.keep for config in trains) * 20 * parameters / 1e9
        written = runs * len(plan.budgets) * how.samples * how.length * 12 / 1e9
        lines.append(
            f"disk: {kept + written:.1f} GB (checkpoints {kept:.1f}, samples {written:.1f}); memory: "
            f"{20 * parameters / 1e9:.2f} GB a process for weights, gradients, averages and moments"
        )
    if costs is None:
        lines.append(f"time: {excuse}")
    else:
        lines.append(f"time: about {spoken(costs.total())} on this machine, from one measured step")
    return "\n".join(lines)


def _costs_or_excuse(plan: Plan) -> tuple[Costs | None, str]:
    if plan.parameters is not None:
        return None, f"not estimated, since {plan.base} is fetched only when it is trained"
    try:
        return Costs.measured(plan), ""
    except ArcmaskError as error:
        return None, f"not estimated, since {error}"
