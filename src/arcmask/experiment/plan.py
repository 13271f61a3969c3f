"""What an experiment consists of. Imports nothing heavy: recipes build plans, and `--help` reads them.

A plan is arms x seeds; each pair is trained once, and sampled and scored at every budget. A seed fixes training and
generation, and all arms share data order, times, masks, gates and sampling draws for a seed: differences are paired.
"""

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from arcmask.data.config import PrepareConfig
from arcmask.errors import ArcmaskError, unknown_name
from arcmask.sampling.config import SampleConfig
from arcmask.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One feedback configuration in a comparison: what it is called, and how it is trained (its seed is the plan's)."""

    label: str
    train: TrainConfig


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How samples are drawn and scored. Without an evaluator or features, the scores that need them are left out."""

    samples: int
    length: int
    batch_size: int = 16
    rule: str = "ancestral"
    top_p: float = 1.0
    drop_crossing: bool = False
    evaluator: str | None = None
    start: Literal["end-of-text", "none"] = "end-of-text"  # what a text's first token is conditioned on
    features: str | None = None  # the model whose features MAUVE compares


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Arms, seeds and budgets, and all they depend on."""

    recipe: str
    title: str
    arms: dict[str, Arm]
    baseline: str  # the arm that the others are compared with
    prepare: PrepareConfig | None  # how the data is made; None for data that is there already
    seeds: tuple[int, ...]
    budgets: tuple[int, ...]  # denoising steps; none for an experiment that only trains
    generation: Generation
    likelihood_rows: int = 512  # held-out rows of the likelihood bound
    parameters: int | None = None  # of the model, where it has to be said before the model can be had
    protocol: str | None = None  # "paper": the paper's values stand beside ours
    read_at: int | None = None  # the step at which training is read for the tables

    def __post_init__(self) -> None:
        for name, values in (("arms", self.arms), ("seeds", self.seeds)):
            if not values:
                raise ArcmaskError(f"an experiment needs {name}, but there are none")
        for name, numbers in (("seeds", self.seeds), ("budgets", self.budgets)):
            if len(set(numbers)) != len(numbers):
                raise ArcmaskError(f"the {name} are {', '.join(map(str, numbers))}, but each must occur once")
        if any(seed < 0 for seed in self.seeds):
            raise ArcmaskError(f"a seed is {min(self.seeds)}, but must be 0 or more")
        if any(budget < 1 for budget in self.budgets):
            raise ArcmaskError(f"a budget is {min(self.budgets)} steps, but must be 1 or more")
        if self.generation.samples < 1:
            raise ArcmaskError(f"samples is {self.generation.samples}, but must be 1 or more")
        for name in self.arms:
            if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
                raise ArcmaskError(f"the arm {name!r} names a folder: small letters, digits, dots and hyphens only")

    @property
    def base(self) -> str:
        """The checkpoint that all arms start from."""
        return next(iter(self.arms.values())).train.init

    @property
    def data(self) -> str:
        """The prepared folder that all arms are trained on."""
        return next(iter(self.arms.values())).train.data

    def train(self, arm: str, seed: int) -> TrainConfig:
        """The settings of one training run."""
        return replace(self.arms[arm].train, seed=seed)

    def sample(self, checkpoint: Path, seed: int, budget: int, out: Path) -> SampleConfig:
        """The settings of one cell's samples; feedback is what the checkpoint was trained with."""
        how = self.generation
        return SampleConfig(
            checkpoint=str(checkpoint),
            num=how.samples,
            length=how.length,
            steps=budget,
            rule=how.rule,
            top_p=how.top_p,
            drop_crossing=how.drop_crossing,
            seed=seed,
            batch_size=how.batch_size,
            out=str(out),
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data: what the report reads, and what a resumed run is held against."""
        how = self.generation
        arms = {
            name: {"label": arm.label, "train": _settings(arm.train), "baseline": name == self.baseline}
            for name, arm in self.arms.items()
        }
        return {
            "recipe": self.recipe,
            "title": self.title,
            "protocol": self.protocol,
            "arms": arms,
            "baseline": self.baseline,
            "seeds": list(self.seeds),
            "budgets": list(self.budgets),
            "samples": how.samples,
            "length": how.length,
            "sampling": {"rule": how.rule, "top_p": how.top_p, "drop_crossing": how.drop_crossing},
            "base": self.base,
            "data": self.data,
            "evaluator": how.evaluator,
            "start": how.start,
            "features": how.features,
            "likelihood_rows": self.likelihood_rows,
            "read_at": self.read_at,
        }


def _settings(train: TrainConfig) -> dict[str, Any]:
    settings = asdict(train) | {"band": list(train.band)}
    del settings["seed"]  # the plan's
    return settings


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a user changes in a recipe.

    Args:
        arms: Only these arms.
        seeds: These seeds in place of the recipe's.
        budgets: These numbers of denoising steps; none at all to train and take the bound only.
        samples: Samples in a cell.
        steps: Training steps of each run.
        batch_size: Sequences in a step, and at a time.
        base: The checkpoint to start from.
        data: A prepared folder to train on.
        length: Positions in a sample.
        evaluator: The model of generative perplexity; none leaves it out.
        features: The model of MAUVE's features; none leaves it out.
    """

    arms: list[str] | None = None
    seeds: list[int] | None = None
    budgets: list[int] | None = None
    samples: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    base: str | None = None
    data: str | None = None
    length: int | None = None
    evaluator: str | None = None
    features: str | None = None

    def apply(self, plan: Plan) -> Plan:
        """The plan with these changes."""
        for name in self.arms or ():
            if name not in plan.arms:
                raise unknown_name("arm", name, plan.arms)
        kept = {name: arm for name, arm in plan.arms.items() if not self.arms or name in self.arms}
        training: dict[str, Any] = {"steps": self.steps, "init": self.base, "data": self.data}
        training |= {"batch_size": self.batch_size, "micro_batch": self.batch_size}
        changed = {key: value for key, value in training.items() if value is not None}
        arms = {name: replace(arm, train=replace(arm.train, **changed)) for name, arm in kept.items()}
        generation = {key: getattr(self, key) for key in ("samples", "length", "evaluator", "features")}
        generation = {key: _none(value) for key, value in generation.items() if value is not None}
        # Another model, evaluator or length is another protocol, whose numbers do not stand beside the paper's.
        is_same = not changed and not generation
        return replace(
            plan,
            protocol=plan.protocol if is_same else None,
            arms=arms,
            baseline=plan.baseline if plan.baseline in arms else next(iter(arms)),
            seeds=plan.seeds if self.seeds is None else tuple(self.seeds),
            budgets=plan.budgets if self.budgets is None else tuple(self.budgets),
            prepare=plan.prepare if self.data is None else None,
            generation=replace(plan.generation, **generation),
            parameters=plan.parameters if self.base is None else None,
        )


def _none(value: Any) -> Any:
    return None if value == "none" else value
