"""The plan of an experiment (arms x seeds x budgets), and the settings of `arcmask reproduce`.

Each pair of arm and seed is trained once, then sampled and scored at every budget. A seed fixes training and
generation. All arms of a seed share data order, times, masks, gates and sampling draws, so differences are paired.
"""

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.sample import SampleConfig
from arcmask.settings.train import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One feedback configuration in a comparison: its label and its training settings. The plan sets the seed."""

    label: str
    train: TrainConfig
    colour: str | None = None  # for an operator from outside the package; the report cannot look it up


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How samples are drawn and scored. Scores that need an evaluator or features are left out without one."""

    samples: int
    length: int
    batch_size: int = 16
    rule: str = "ancestral"
    top_p: float = 1.0
    drop_crossing: bool = False
    evaluator: str | None = None
    start: Literal["end-of-text", "none"] = "end-of-text"  # what precedes a text's first token
    features: str | None = None  # the model whose features MAUVE compares

    def __post_init__(self) -> None:
        check_range(1, 10**7, self, "samples")
        check_range(1, MAX_LENGTH, self, "length", "batch_size")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Arms, seeds and budgets, and everything they depend on."""

    recipe: str
    title: str
    arms: dict[str, Arm]
    baseline: str  # the arm that the others are compared with
    prepare: PrepareConfig | None  # how to prepare the data; None if the folder exists already
    seeds: tuple[int, ...]
    budgets: tuple[int, ...]  # denoising steps; empty for an experiment that only trains
    generation: Generation
    likelihood_rows: int = 512  # held-out rows for the likelihood bound
    parameters: int | None = None  # of a base that is fetched only when it is trained
    protocol: str | None = None  # "paper": the report shows the paper's values beside ours
    read_at: int | None = None  # the training step that the tables show

    def __post_init__(self) -> None:
        for name, values in (("arms", self.arms), ("seeds", self.seeds)):
            if not values:
                raise ArcmaskError(f"an experiment needs {name}, but there are none")
        for name, numbers in (("seeds", self.seeds), ("budgets", self.budgets)):
            if len(set(numbers)) != len(numbers):
                raise ArcmaskError(f"the {name} are {', '.join(map(str, numbers))}, but each must occur once")
        check_range(0, MAX_SEED, self, "seeds")
        check_range(1, MAX_LENGTH, self, "budgets")
        check_range(1, 10**9, self, "likelihood_rows")
        for name in self.arms:
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                raise ArcmaskError(f"the arm {name!r} names a folder: use lower-case letters, digits and .-_ only")

    @property
    def base(self) -> str:
        """The checkpoint that all arms start from."""
        return next(iter(self.arms.values())).train.init

    @property
    def data(self) -> str:
        """The prepared folder that all arms are trained on."""
        return next(iter(self.arms.values())).train.data

    def train(self, arm: str, seed: int) -> TrainConfig:
        """Return the settings of one training run."""
        return replace(self.arms[arm].train, seed=seed)

    def sample(self, checkpoint: Path, seed: int, budget: int, out: Path) -> SampleConfig:
        """Return the settings of one cell's samples, with the feedback that the checkpoint was trained with."""
        names = ("length", "rule", "top_p", "drop_crossing", "batch_size")
        shared: dict[str, Any] = {name: getattr(self.generation, name) for name in names}
        num = self.generation.samples
        return SampleConfig(checkpoint=str(checkpoint), num=num, steps=budget, seed=seed, out=str(out), **shared)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data. The report reads it, and a resumed run must match it."""
        generation = asdict(self.generation)
        del generation["batch_size"]  # it does not change the samples
        sampling = {name: generation.pop(name) for name in ("rule", "top_p", "drop_crossing")}
        names = ("recipe", "title", "protocol", "baseline", "base", "data", "likelihood_rows", "read_at")
        return {
            **{name: getattr(self, name) for name in names},
            "arms": {name: self._arm_to_json(name) for name in self.arms},
            "seeds": list(self.seeds),
            "budgets": list(self.budgets),
            "sampling": sampling,
            **generation,
        }

    def _arm_to_json(self, name: str) -> dict[str, Any]:
        arm = self.arms[name]
        train = arm.train.to_dict()
        del train["seed"]  # the plan sets it
        colour = {} if arm.colour is None else {"colour": arm.colour}
        return {"label": arm.label, "train": train, "baseline": name == self.baseline, **colour}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What to change in a recipe.

    Args:
        arms: Run only these arms.
        operators: Add an arm for each of these operators: a name, or FILE.py:FUNCTION.
        seeds: Use these seeds.
        budgets: Use these numbers of denoising steps. Without a number, only train and compute the bound.
        samples: Samples per cell.
        steps: Training steps per run.
        batch_size: Sequences per step and per forward pass.
        base: The checkpoint to start from.
        data: The prepared folder to train on.
        length: Positions per sample.
        evaluator: The model for generative perplexity; none leaves it out.
        features: The model for MAUVE's features; none leaves it out.
    """

    arms: tuple[str, ...] | None = None
    operators: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    budgets: tuple[int, ...] | None = None
    samples: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    base: str | None = None
    data: str | None = None
    length: int | None = None
    evaluator: str | None = None
    features: str | None = None

    def apply(self, plan: Plan) -> Plan:
        """Return the plan with these changes. Operators are added by `recipes.add_operators`."""
        for name in self.arms or ():
            check_choice("arm", name, plan.arms)
        training = self._changes(steps="steps", init="base", data="data")
        training |= self._changes(batch_size="batch_size", micro_batch="batch_size")
        generation = self._changes(samples="samples", length="length", evaluator="evaluator", features="features")
        generation = {name: None if value == "none" else value for name, value in generation.items()}
        arms = {
            name: replace(arm, train=replace(arm.train, **training))
            for name, arm in plan.arms.items()
            if not self.arms or name in self.arms
        }
        return replace(
            plan,
            # With another model, evaluator or length the paper's values are not comparable.
            protocol=None if training or generation else plan.protocol,
            arms=arms,
            baseline=plan.baseline if plan.baseline in arms else next(iter(arms)),
            seeds=plan.seeds if self.seeds is None else tuple(self.seeds),
            budgets=plan.budgets if self.budgets is None else tuple(self.budgets),
            prepare=plan.prepare if self.data is None else None,
            generation=replace(plan.generation, **generation),
            parameters=plan.parameters if self.base is None else None,
        )

    def _changes(self, **names: str) -> dict[str, Any]:
        """Return the changes that are not None. An argument maps the plan's name of a setting to its name here."""
        values = {name: getattr(self, change) for name, change in names.items()}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """An experiment, where to carry it out, and what to change in it.

    Args:
        recipe: The name of an experiment.
        run: The folder of the experiment. Default: runs/RECIPE.
    """

    recipe: str
    changes: Changes
    run: str | None = None

    @property
    def folder(self) -> str:
        """The folder of the experiment."""
        return self.run or f"runs/{self.recipe}"
