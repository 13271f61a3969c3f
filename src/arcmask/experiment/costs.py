"""Estimate how long the stages of a plan take, from counted operations and the speeds of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arcmask.diagnostics.inspection import curve_cells
from arcmask.estimates import Layout, Machine, Work, work
from arcmask.settings.experiment import Arm, Plan, Tuning
from arcmask.settings.train import TrainConfig
from arcmask.training.dry_run import MASKED, step_seconds, validation_seconds
from arcmask.tuning import EVALUATIONS

_CHARACTERS_PER_TOKEN = 4
_TIMES, _INSPECTED = 9, 2048  # of an inspection: times, and tokens at each
_FIGURES = 5.0  # seconds that its figures take
_BAND = (0.2, 0.8)
_NEAREST = 0.2  # seconds to find the nearest of 10,000 rows of 120 tokens


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Approximate seconds of each kind of stage. Training and sampling are shared by `world` processes."""

    plan: Plan
    base: Layout
    evaluators: Mapping[str, Layout]  # by name; one that is not known costs nothing
    machine: Machine
    world: int = 1
    is_characters: bool = False  # whether a token is one letter

    @property
    def _length(self) -> int:
        return self.plan.generation.length

    def training(self, config: TrainConfig) -> float:
        """Return the seconds of one training run."""
        sizes = (self.base, self._length, self.machine, self.world)
        return config.steps * step_seconds(config, *sizes) + validation_seconds(config, *sizes)

    def _bounds(self, rows: float) -> Work:
        """Return the work of passes over so many rows of held-out text, with losses."""
        return work.bounding(self.base, self._length, masked=MASKED) * (rows * self._length)

    def tuning(self, tuning: Tuning) -> float:
        """Return the seconds of fitting an arm's feedback."""
        return self.machine.seconds(self._bounds(tuning.rows * (1 + EVALUATIONS[tuning.fixed])), "float32")

    def inspection(self) -> float:
        """Return the seconds of inspecting the base: predictions at nine times, its curves, and the figures."""
        config = self.plan.inspection(Path())
        cells = curve_cells(config)
        rows = (_TIMES * _INSPECTED + config.gain_tokens * cells.get("gain", 0)) / self._length
        samples = work.sampling(self.base, self._length, config.steps, band=_BAND) * config.samples
        total = self._bounds(rows) + samples * cells.get("generation", 0)
        return self.machine.seconds(total, "float32") + _FIGURES

    def likelihood(self, arm: Arm) -> float:
        """Return the seconds of one held-out likelihood: a pass, and one more if there is feedback."""
        passes = 1 if arm.operator == "none" else 2
        return self.machine.seconds(self._bounds(passes * self.plan.likelihood_rows), "float32")

    def sampling(self, arm: Arm, budget: int) -> float:
        """Return the seconds of one cell's samples."""
        generation = self.plan.generation
        band = generation.band or (_BAND if arm.train is None else arm.train.band)
        sample = work.sampling(
            self.base,
            self._length,
            budget,
            band=None if arm.operator == "none" else band,
            rule=generation.rule,
            top_p=generation.top_p,
        )
        return self.machine.seconds(sample * (generation.samples / self.world), generation.precision)

    def scoring(self) -> float:
        """Return the seconds of one cell's scores. The features of real text are computed once per seed."""
        plan, generation = self.plan, self.plan.generation
        length = max(1, self._length // (_CHARACTERS_PER_TOKEN if self.is_characters else 1))
        texts = {generation.evaluator: 1.0} if generation.evaluator else {}
        if generation.features:
            real = 1 / max(1, len(plan.arms) * len(plan.budgets))
            own = 0.0 if generation.features == generation.evaluator else 1.0  # one pass has both
            texts[generation.features] = texts.get(generation.features, 0.0) + own + real
        total = Work()
        for name, count in texts.items():
            if name in self.evaluators:
                layout, has_losses = self.evaluators[name], name == generation.evaluator
                tokens = count * generation.samples * length
                total += work.scoring(layout, min(length, 1024), with_losses=has_losses) * tokens
        seeds = len(generation.kmeans_seeds) + (generation.mauve_seed is not None) if generation.features else 0
        clusters = work.clustering(generation.samples) * seeds
        edits = generation.samples * _NEAREST if generation.nearest else 0.0
        return self.machine.seconds(total, generation.evaluator_precision) + clusters + edits + 0.1

    def by_kind(self) -> dict[str, float]:
        """Return the seconds of all stages by their kind. What one process does alone is shared out between them."""
        plan = self.plan
        alone = {
            "inspection": self.inspection(),
            "tuning": sum(self.tuning(arm.tune) for arm in plan.arms.values() if arm.tune is not None),
            "likelihood": sum(self.likelihood(arm) for arm in plan.arms.values()) * len(plan.seeds),
            "scoring": self.scoring() * len(plan.arms) * len(plan.seeds) * len(plan.budgets),
        }
        cells = [self.sampling(arm, budget) for arm in plan.arms.values() for budget in plan.budgets]
        return {
            "training": sum(map(self.training, plan.trainings)),
            "sampling": sum(cells) * len(plan.seeds),
            **{kind: seconds / self.world for kind, seconds in alone.items()},
        }
