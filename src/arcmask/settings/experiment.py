"""The plan of an experiment (arms x seeds x budgets), and the settings of `arcmask reproduce`.

An arm is trained once per seed, or its backbone is frozen: the base as it is, or with feedback that is fitted once.
Every arm and seed is then sampled and scored at every budget. A seed fixes training, generation and held-out rows. All
arms of a seed share data order, times, masks, gates and sampling draws, so differences are paired. An ablation is only
trained, with the first seed.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from arcmask.errors import ArcmaskError, check_band, check_choice, check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED, PRECISIONS, Precision
from arcmask.settings.cards import CARDS, check_card
from arcmask.settings.evaluate import KMEANS_SEEDS, check_kmeans_seeds
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.sample import SampleConfig
from arcmask.settings.train import FITTED, TrainConfig

_MOST_GAIN_ROWS = 512
# The settings of `prepare` that make the data those of a protocol, wherever the text came from.
PROTOCOL_DATA: dict[str, dict[str, Any]] = {
    "paper": {"kind": "openwebtext", "tokenizer": "gpt2", "length": 1024, "row_form": "enclosed"}
}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How feedback is fitted to the base as it is; see `arcmask.tune`."""

    operator: str
    fixed: bool = False  # fit one constant weight instead of the three confidence scalars
    goal: str = "bound"
    rows: int = 128  # rows of training text to fit on

    def __post_init__(self) -> None:
        check_choice("goal", self.goal, ("bound", "generation"))
        check_range(4, 10**6, self, "rows")
        if self.operator == "none":
            raise ArcmaskError("the operator none has no feedback to tune; an arm without train and tune is the base")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One configuration in a comparison: the base trained, tuned, or, with neither, as it is without feedback.

    The plan sets the seed of training.
    """

    label: str
    train: TrainConfig | None = None
    tune: Tuning | None = None
    temperature: float = 1.0  # of sampling
    colour: str | None = None  # for an operator from outside the package; the report cannot look it up

    def __post_init__(self) -> None:
        if self.train is not None and self.tune is not None:
            raise ArcmaskError(f"the arm {self.label!r} has both train and tune; give one of them")
        if not 0 < self.temperature < math.inf:
            raise ArcmaskError(
                f"the temperature of the arm {self.label!r} is {self.temperature}, but must be a number above 0"
            )

    @property
    def operator(self) -> str:
        """The operator that feeds predictions back, or none."""
        settings = self.train or self.tune
        return "none" if settings is None else settings.operator


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How samples are drawn and scored. Scores that need an evaluator or features are left out without one.

    With `ends`, the first and the last tokens of held-out rows are given, and what is between them is sampled, `fills`
    times for each row. With `prompts`, sample i takes prompt i of the file, as in `arcmask sample`.
    """

    samples: int
    length: int
    batch_size: int = 16
    rule: str = "ancestral"
    top_p: float = 1.0
    drop_crossing: bool = False
    band: tuple[float, float] | None = None  # times at which feedback is used; None for those of the training
    reuse: bool = False  # after a step that changed no token, use its prediction again, without feedback
    evaluator: str | None = None
    start: Literal["end-of-text", "none"] = "end-of-text"  # what precedes a text's first token
    features: str | None = None  # the model whose features MAUVE compares
    mauve_seed: int | None = None  # of MAUVE's clustering; None for the mean over kmeans_seeds
    kmeans_seeds: tuple[int, ...] = KMEANS_SEEDS
    precision: Precision = "auto"  # of sampling
    evaluator_batch: int | None = None  # tokens per batch of the evaluator; None for what suits the device
    evaluator_precision: Precision = "auto"
    ends: tuple[int, ...] | None = None  # how many tokens of a held-out row are given, at its beginning and its end
    fills: int = 1  # samples for each held-out row
    prompts: str | None = None  # a file with a prompt per line
    nearest: bool = False  # whether samples are compared with the training rows, which must be one document each

    def __post_init__(self) -> None:
        check_range(1, 10**7, self, "samples", "fills")
        check_range(1, MAX_LENGTH, self, "length", "batch_size")
        check_range(1, 10**9, self, "evaluator_batch")
        check_kmeans_seeds(self)
        for name in ("precision", "evaluator_precision"):
            check_choice(name, getattr(self, name), PRECISIONS)
        if self.band is not None:
            check_band(self.band)
        if self.ends is not None and (len(self.ends) != 2 or min(self.ends) < 0):
            raise ArcmaskError(f"ends is {list(self.ends)}, but must be two numbers of tokens, such as [25, 11]")
        if self.ends is not None and self.prompts is not None:
            raise ArcmaskError(f"prompts is {self.prompts} and ends is {list(self.ends)}; give one of them")
        if self.ends is None and self.fills > 1:
            raise ArcmaskError(f"fills is {self.fills}, but without ends no held-out rows are filled in; leave it out")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Arms, seeds and budgets, and everything they depend on."""

    recipe: str
    title: str
    arms: dict[str, Arm]
    baseline: str  # the arm that the others are compared with
    base: str  # the checkpoint that all arms start from
    data: str  # the prepared folder that arms are trained, tuned and measured on
    prepare: PrepareConfig | None  # how to prepare the data; None if the folder exists already
    seeds: tuple[int, ...]
    budgets: tuple[int, ...]  # denoising steps; empty for an experiment that only trains
    generation: Generation
    likelihood_rows: int = 512  # held-out rows for the likelihood bound
    protocol: str | None = None  # "paper": the report shows the paper's values beside ours
    read_at: int | None = None  # the training step that the tables show
    generate: bool = False  # whether the base's quality is drawn against entropy
    # Arms that are trained with the first seed, and neither sampled nor compared. The report reads them, and the arm
    # that differs from them in one setting, at their last step.
    ablations: dict[str, Arm] = field(default_factory=dict)
    pretrain: TrainConfig | None = None  # how to train the base, in the folder `base`; None if it exists already

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
        check_choice("baseline", self.baseline, self.arms)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.recipe):
            raise ArcmaskError(f"the recipe {self.recipe!r} names a folder: use letters, digits and .-_ only")
        if self.prepare is not None and self.prepare.out != self.data:
            raise ArcmaskError(f"the plan prepares {self.prepare.out}, but its data are {self.data}")
        if self.pretrain is not None and self.pretrain.data != self.data:
            raise ArcmaskError(f"the plan trains its base on {self.pretrain.data}, but its data are {self.data}")
        for name, arm in self.ablations.items():
            if name in self.arms:
                raise ArcmaskError(f"{name!r} is both an arm and an ablation; give them different names")
            if arm.train is None:
                raise ArcmaskError(f"the ablation {name!r} is not trained, so there is nothing to read")
        every = self.arms | self.ablations
        for name, arm in every.items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                raise ArcmaskError(f"the arm {name!r} names a folder: use lower-case letters, digits and .-_ only")
            if arm.train is not None and (arm.train.init, arm.train.data) != (self.base, self.data):
                raise ArcmaskError(
                    f"the arm {name!r} trains {arm.train.init} on {arm.train.data}, but the plan has {self.base} and "
                    f"{self.data}"
                )
        for first, second in combinations(every, 2):
            if replace(every[first], label="") == replace(every[second], label=""):
                raise ArcmaskError(f"the arms {first!r} and {second!r} have the same settings; leave one of them out")

    @property
    def folder(self) -> Path:
        """The folder of the experiment, unless another one is given."""
        return Path("runs", self.recipe)

    @property
    def heading(self) -> str:
        """The title, with the base that the experiment is about."""
        return self.title if self.base in self.title else f"{self.title}: feedback in {self.base}"

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the arms with feedback, each once."""
        return tuple(dict.fromkeys(arm.operator for arm in self.arms.values() if arm.operator != "none"))

    @property
    def trainings(self) -> list[TrainConfig]:
        """The settings of all training runs: of the base, of the arms with every seed, and of the ablations."""
        runs = [(arm, seed) for seed in self.seeds for arm in self.arms]
        runs += [(ablation, self.seeds[0]) for ablation in self.ablations]
        base = [] if self.pretrain is None else [self.pretrain]
        return base + [config for config in (self.train(*run) for run in runs) if config is not None]

    def misfits(self, settings: Mapping[str, Any]) -> list[str]:
        """List in what data that were prepared with these settings differ from those of the protocol."""
        wanted = PROTOCOL_DATA.get(self.protocol or "", {})
        differing = [(name, settings.get(name), value) for name, value in wanted.items()]
        return [f"{name} is {actual}, not {value}" for name, actual, value in differing if actual != value]

    def train(self, arm: str, seed: int) -> TrainConfig | None:
        """Return the settings of one training run of an arm or an ablation; None if the backbone is frozen."""
        settings = (self.arms | self.ablations)[arm].train
        return None if settings is None else replace(settings, seed=seed)

    def inspection(self, out: Path) -> InspectConfig:
        """Return the settings of the base's inspection.

        Its curves compare LERP, SLERP and the operators of the arms. They are drawn once, not per seed, so they use
        twice the samples of a cell.
        """
        generation: dict[str, Any] = {}
        if self.generate and self.budgets:
            generation = {"generate": True, "samples": 2 * self.generation.samples, "steps": max(self.budgets)}
        return InspectConfig(
            checkpoint=self.base,
            data=self.data,
            out=str(out),
            operators=tuple(dict.fromkeys(("linear", "spherical", *self.operators))),
            gain_tokens=min(_MOST_GAIN_ROWS, self.likelihood_rows) * self.generation.length,
            **generation,
        )

    def sample(
        self, arm: str, checkpoint: str, seed: int, budget: int, out: Path, prompts: Path | None = None
    ) -> SampleConfig:
        """Return the settings of one cell's samples, with the feedback that the checkpoint has if it is not the base's.

        The base as it is has no feedback, whatever is stored with it. `prompts` is the file of the seed's prompts, if
        the plan takes them from held-out rows.
        """
        names = ("length", "rule", "top_p", "drop_crossing", "reuse", "batch_size", "precision", "prompts")
        shared: dict[str, Any] = {name: getattr(self.generation, name) for name in names}
        if self.generation.ends is not None:
            shared["prompts"] = str(prompts)
        if self.arms[arm].operator != "none":
            shared["band"] = self.generation.band
        is_base = self.arms[arm].train is None and self.arms[arm].tune is None
        return SampleConfig(
            checkpoint=checkpoint,
            num=self.generation.samples,
            steps=budget,
            seed=seed,
            out=str(out),
            feedback="none" if is_base else None,
            temperature=self.arms[arm].temperature,
            **shared,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data. The report reads it, and a resumed or extended run must fit it."""
        generation = asdict(self.generation)
        for name in ("batch_size", "evaluator_batch"):  # they do not change the samples and scores
            del generation[name]
        # Plans from before these settings have none of them.
        later = ("precision", "evaluator_precision", "reuse", "mauve_seed", "kmeans_seeds")
        for name in (*later, "ends", "fills", "prompts", "nearest", "band"):
            if generation[name] == getattr(Generation, name):
                del generation[name]
        for name in ("ends", "band"):
            if name in generation:
                generation[name] = list(generation[name])
        of_sampling = ("rule", "top_p", "drop_crossing", "reuse")
        sampling = {name: generation.pop(name) for name in of_sampling if name in generation}
        names = ("recipe", "protocol", "baseline", "base", "data", "likelihood_rows", "read_at")
        ablations = {name: self._arm_to_json(name, arm) for name, arm in self.ablations.items()}
        return {
            "title": self.heading,
            **{name: getattr(self, name) for name in names},
            "arms": {name: self._arm_to_json(name, arm) for name, arm in self.arms.items()},
            "seeds": list(self.seeds),
            "budgets": list(self.budgets),
            "sampling": sampling,
            **generation,
            **({"ablations": ablations} if ablations else {}),
            **({} if self.pretrain is None else {"pretrain": self.pretrain.to_dict()}),
        }

    def _arm_to_json(self, name: str, arm: Arm) -> dict[str, Any]:
        entry: dict[str, Any] = {"label": arm.label, "baseline": name == self.baseline, "train": None}
        if arm.train is None:
            entry["tune"] = None if arm.tune is None else asdict(arm.tune)
        else:
            entry["train"] = arm.train.to_dict()
            del entry["train"]["seed"]  # the plan sets it
        if arm.train is None or arm.temperature != 1:  # a trained arm at 1 is written as it was before there was more
            entry["temperature"] = arm.temperature
        return entry if arm.colour is None else entry | {"colour": arm.colour}


def _changed(arm: Arm, training: dict[str, Any]) -> Arm:
    return arm if arm.train is None else replace(arm, train=replace(arm.train, **training))


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What to change in a recipe.

    Args:
        arms: Run only these arms and ablations.
        operators: Add an arm for each of these operators: a name, or FILE.py:FUNCTION.
        seeds: Use these seeds.
        budgets: Use these numbers of denoising steps. Without a number, only train and compute the bound.
        samples: Samples per cell.
        steps: Training steps per run.
        batch_size: Sequences per training step, over all ranks.
        micro_batch: Sequences per rank and forward pass in training. It sets memory, not the batch.
        sampling_batch: Samples per batch. It changes speed and memory, not the samples.
        checkpoint_blocks: Recompute activations in the backward pass to save memory.
        compile_blocks: Compile each block with torch.compile in training.
        precision: Precision of training and sampling: auto, float32 or bfloat16.
        evaluator_batch: Tokens per batch of the evaluator. It changes speed and memory, not the scores.
        evaluator_precision: Precision of the evaluator: auto, float32 or bfloat16.
        base: The checkpoint to start from.
        data: The prepared folder to train, tune and measure on.
        corpus: Where to take the recipe's text from: a copy on disk, or another name on the hub.
        length: Positions per sample.
        prompts: A file with a prompt per line, which samples start from; see `arcmask sample --prompts`.
        evaluator: The model for generative perplexity; none leaves it out.
        features: The model for MAUVE's features; none leaves it out.
        mauve_seed: The seed of MAUVE's clustering. Without one, MAUVE is the mean over kmeans_seeds.
        kmeans_seeds: Seeds of MAUVE's clustering, over which a mean is taken.
    """

    arms: tuple[str, ...] | None = None
    operators: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    budgets: tuple[int, ...] | None = None
    samples: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    micro_batch: int | None = None
    sampling_batch: int | None = None
    checkpoint_blocks: bool | None = None
    compile_blocks: bool | None = None
    precision: Precision | None = None
    evaluator_batch: int | None = None
    evaluator_precision: Precision | None = None
    base: str | None = None
    data: str | None = None
    corpus: str | None = None
    length: int | None = None
    prompts: str | None = None
    evaluator: str | None = None
    features: str | None = None
    mauve_seed: int | None = None
    kmeans_seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_range(1, MAX_LENGTH, self, "batch_size", "micro_batch", "sampling_batch")

    def apply(self, plan: Plan) -> Plan:
        """Return the plan with these changes. Operators are added by `recipes.add_operators`."""
        for name in self.arms or ():
            check_choice("arm", name, plan.arms | plan.ablations)
        if self.arms and len(set(self.arms)) != len(self.arms):
            raise ArcmaskError(f"the arms are {', '.join(self.arms)}, but each must occur once")
        training = self._changes(steps="steps", init="base", batch_size="batch_size")
        generation = self._changes(samples="samples", length="length", evaluator="evaluator", features="features")
        generation = {name: None if value == "none" else value for name, value in generation.items()}
        generation |= {} if self.prompts is None else {"prompts": self.prompts, "ends": None, "fills": 1}
        # With another model, evaluator or length the paper's values are not comparable. How the work is divided and
        # rounded leaves them comparable. What the data are is read from them when the experiment starts.
        trained = [arm.train for arm in plan.arms.values() if arm.train is not None]
        is_other = any(getattr(config, name) != value for config in trained for name, value in training.items())
        is_other |= any(getattr(plan.generation, name) != value for name, value in generation.items())
        protocol = None if is_other else plan.protocol
        if self.base not in (None, plan.base):
            training |= FITTED
        same = {name: name for name in ("micro_batch", "checkpoint_blocks", "compile_blocks", "precision", "data")}
        shared = self._changes(**same)
        training |= shared
        names = ("precision", "evaluator_batch", "evaluator_precision", "mauve_seed", "kmeans_seeds")
        generation |= self._changes(batch_size="sampling_batch", **{name: name for name in names})
        if self.kmeans_seeds is not None:
            generation["kmeans_seeds"] = tuple(self.kmeans_seeds)
        chosen = self.arms or (*plan.arms, *plan.ablations)
        arms, ablations = (
            {name: _changed(arm, training) for name, arm in some.items() if name in chosen}
            for some in (plan.arms, plan.ablations)
        )
        return replace(
            plan,
            protocol=protocol,
            arms=arms,
            ablations={name: self._shortened(arm, plan.ablations[name]) for name, arm in ablations.items()},
            baseline=plan.baseline if plan.baseline in arms else next(iter(arms), ""),
            seeds=plan.seeds if self.seeds is None else tuple(self.seeds),
            budgets=plan.budgets if self.budgets is None else tuple(self.budgets),
            base=plan.base if self.base is None else self.base,
            data=plan.data if self.data is None else self.data,
            prepare=self._prepare(plan),
            generation=replace(plan.generation, **generation),
            pretrain=None if plan.pretrain is None or self.base is not None else replace(plan.pretrain, **shared),
        )

    def _prepare(self, plan: Plan) -> PrepareConfig | None:
        """Return how to prepare the data, from another copy of the text if there is one."""
        if self.corpus is None:
            return plan.prepare if self.data is None else None
        if plan.prepare is None or self.data is not None:
            folder = plan.data if self.data is None else self.data
            raise ArcmaskError(f"corpus is {self.corpus}, but the data are the prepared folder {folder}; give one")
        return replace(plan.prepare, corpus=self.corpus, kind=plan.prepare.text_kind)

    def refuse_unused(self, plan: Plan) -> None:
        """Raise for a change that has no effect in the plan that it was made in."""
        reasons: dict[str, str] = {}
        training = ("steps", "batch_size", "micro_batch", "checkpoint_blocks", "compile_blocks")
        scoring = ("evaluator_batch", "evaluator_precision")
        if not self.operators and not plan.trainings:
            reasons |= dict.fromkeys(training, "no arm is trained")
        if {plan.generation.evaluator, plan.generation.features} == {None}:
            reasons |= dict.fromkeys(scoring, "there is no evaluator and there are no features")
        if plan.generation.features is None:
            reasons |= dict.fromkeys(("mauve_seed", "kmeans_seeds"), "there are no features, so there is no MAUVE")
        if not plan.budgets:
            names = ("samples", "prompts", "sampling_batch", "evaluator", "features", "mauve_seed", "kmeans_seeds")
            reasons |= dict.fromkeys((*names, *scoring), "without budgets nothing is sampled")
        for name, reason in reasons.items():
            if getattr(self, name) not in (None, False, "none"):
                raise ArcmaskError(f"{name} has no effect, since {reason}; leave it out")

    def _shortened(self, ablation: Arm, before: Arm) -> Arm:
        """Return an ablation with no more steps than the recipe's; it is read before the end of the arms."""
        assert ablation.train is not None
        assert before.train is not None
        return replace(ablation, train=replace(ablation.train, steps=min(ablation.train.steps, before.train.steps)))

    def _changes(self, **names: str) -> dict[str, Any]:
        """Return the changes that are not None. An argument maps the plan's name of a setting to its name here."""
        values = {name: getattr(self, change) for name, change in names.items()}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand:
    """An experiment, where to carry it out, and what to change in it.

    Args:
        recipe: The name of an experiment, or a plan of your own: FILE.yaml, FILE.py or FILE.py:FUNCTION.
        run: The folder of the experiment. Default: runs/RECIPE, with the name that a plan of your own has.
        card: With --dry-run, estimate for this GPU in place of this machine: {cards}.
    """

    recipe: str
    changes: Changes
    run: str | None = None
    card: str | None = None

    def __post_init__(self) -> None:
        check_card(self.card)


ReproduceCommand.__doc__ = (ReproduceCommand.__doc__ or "").replace("{cards}", ", ".join(CARDS))
