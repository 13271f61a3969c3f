"""A plan, carried out: every cell is a folder with its result, and what is there is not done again.

Under torchrun all ranks train and sample together; scores are shared out, a cell to a rank. Ranks wait for files,
not for each other, so that one that scores for an hour breaks no collective.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import arcmask
from arcmask.checkpoint import load_for_use
from arcmask.data import open_prepared, prepare
from arcmask.diagnostics.inspection import inspect
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference, ReferenceWords, evaluate_set, likelihood, open_evaluator, read_samples
from arcmask.evaluation.mauve import LEAST, has_mauve
from arcmask.experiment.estimate import Clock, Costs
from arcmask.files import json_bytes, write_whole
from arcmask.run_folder import (
    INSPECTION,
    LIKELIHOOD,
    PLAN,
    SAMPLES,
    SCORES,
    TRAINING,
    cell_folder,
    newest_checkpoint,
    read_settings,
    refuse_other_settings,
)
from arcmask.sampling.generate import generate
from arcmask.settings.evaluate import PerplexitySettings
from arcmask.settings.experiment import Plan
from arcmask.settings.inspect import InspectConfig
from arcmask.training import train

_NOT_COMPARED = ("command", "environment", "corpus", "tokenizer")


@dataclass(frozen=True)
class Stage:
    """One thing to do. Those that all ranks do together are waited for; the others belong to a rank each."""

    what: str
    cost: float  # seconds, about
    together: bool
    is_done: Callable[[], bool]
    act: Callable[[], object]


def reproduce(plan: Plan, folder: str | Path, command: str | None = None) -> Path:
    """Carry the plan out in `folder`, or go on with it; returns the folder. `command` repeats it, for the report."""
    run = Run(plan, Path(folder))
    run.open(command)
    run.carry_out()
    return run.folder


class Run:
    """An experiment under way."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    def open(self, command: str | None) -> None:
        """See that all can be had, make the folder, or see that it is of the same plan; then the data."""
        if self.plan.generation.features is not None and not has_mauve():
            raise ArcmaskError(
                f"{self.plan.recipe} computes MAUVE, which needs mauve-text: pip install 'arcmask[eval]', "
                "or leave it out with --features none"
            )
        how = self.plan.generation
        if how.features is not None and how.samples < LEAST:
            raise ArcmaskError(
                f"MAUVE needs {LEAST} samples a cell, but there are {how.samples}; leave it out with --features none"
            )
        asked = self.plan.to_json()
        path = self.folder / PLAN
        if path.exists():
            stored = {name: value for name, value in read_settings(path).items() if name not in _NOT_COMPARED}
            refuse_other_settings(self.folder, stored, asked)
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ArcmaskError(f"{self.folder} is not empty and holds no {PLAN}; give another folder")
        if self.plan.budgets:  # one that cannot be had is missed now, not when all is trained
            self._evaluator(how.evaluator)
            self._evaluator(how.features)
        if self.rank == 0:
            if self.plan.prepare is not None:
                prepare(self.plan.prepare)
            self._write_plan(path, asked, command)
        _wait_until(path.exists)

    def _write_plan(self, path: Path, asked: dict[str, Any], command: str | None) -> None:
        index = open_prepared(self.plan.data).index
        about = {"corpus": index.settings["corpus"].split(" ")[0], "tokenizer": index.tokenizer}
        environment = {
            "arcmask": arcmask.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}",
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            command = command or f"arcmask reproduce {self.plan.recipe}"
            write_whole(path, json_bytes(asked | about | {"command": command, "environment": environment}))
        except OSError as error:
            raise ArcmaskError(f"{self.folder} cannot be written: {error.strerror}") from error

    def carry_out(self) -> None:
        """All stages that are not done, with word of each and of the time that is left."""
        stages = list(self.stages())
        clock = Clock([0.0 if stage.is_done() else stage.cost for stage in stages])
        # A stage's number is its place among all, done or not: that is the same for every rank, whenever it looks.
        for number, stage in enumerate(stages):
            if stage.is_done():
                continue
            if self.rank == 0:
                place = f"[{number + 1} of {len(stages)}]"
                print(f"{place} {stage.what}; {clock.left(number)}", file=sys.stderr, flush=True)
            if stage.together:
                stage.act()
                _wait_until(stage.is_done)
            elif number % self.world == self.rank:
                stage.act()
        for stage in stages:
            _wait_until(stage.is_done)

    def stages(self) -> Iterable[Stage]:
        """In the order in which they are done: a seed after the other, so that what is there is always comparable."""
        plan, costs = self.plan, Costs.measured(self.plan)
        geometry = self.folder / INSPECTION
        looking = InspectConfig(checkpoint=plan.base, data=plan.data, out=str(geometry))
        yield Stage(f"look at {plan.base}", costs.looking(), False, geometry.exists, lambda: inspect(looking))
        for seed in plan.seeds:
            for arm in plan.arms:
                yield self._training(arm, seed, costs)
                cell = cell_folder(self.folder, arm, seed)
                target = cell / LIKELIHOOD
                yield Stage(
                    f"likelihood of {arm}, seed {seed}",
                    costs.likelihood(),
                    False,
                    target.exists,
                    lambda cell=cell: self._likelihood(cell),  # type: ignore[misc]
                )
                for budget in plan.budgets:
                    yield from self._generation(arm, seed, budget, costs)

    def _training(self, arm: str, seed: int, costs: Costs) -> Stage:
        config, folder = self.plan.train(arm, seed), cell_folder(self.folder, arm, seed) / TRAINING
        last = f"step-{config.steps:07d}"

        def is_done() -> bool:
            newest = newest_checkpoint(folder)
            return newest is not None and newest.name == last

        def act() -> None:
            train(config, folder)

        return Stage(f"train {arm}, seed {seed}: {config.steps} steps", costs.training(config), True, is_done, act)

    def _likelihood(self, cell: Path) -> None:
        found = likelihood(load_for_use(str(cell / TRAINING)), self.plan.data, rows=self.plan.likelihood_rows)
        write_whole(cell / LIKELIHOOD, json_bytes(found))

    def _generation(self, arm: str, seed: int, budget: int, costs: Costs) -> Iterable[Stage]:
        how, cell = self.plan.generation, cell_folder(self.folder, arm, seed, budget)
        config = self.plan.sample(cell_folder(self.folder, arm, seed) / TRAINING, seed, budget, cell / SAMPLES)
        what = f"{how.samples} samples of {arm}, seed {seed}, {budget} steps"
        sampled = lambda: _lines(cell / SAMPLES) >= how.samples  # noqa: E731
        yield Stage(what, costs.sampling(budget), True, sampled, lambda: list(generate(config, load_for_use)))
        yield Stage(
            f"scores of {what}", costs.scoring(), False, (cell / SCORES).exists, lambda: self._score(cell, seed)
        )

    def _score(self, cell: Path, seed: int) -> None:
        how = self.plan.generation
        found = read_samples(str(cell / SAMPLES))
        record = evaluate_set(
            found.texts,
            token_lists=found.token_lists,
            tokenizer=open_prepared(self.plan.data).index.tokenizer,
            reference_words=self._reference_words,
            evaluator=self._evaluator(how.evaluator),
            features=self._evaluator(how.features),
            perplexity=PerplexitySettings(start=how.start),
            mauve_reference=self._reference.texts(how.samples, seed) if how.features is not None else None,
            seed=seed,
            cache=self.folder / "cache",
            source=SAMPLES,
        )
        write_whole(cell / SCORES, json_bytes(record))

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self.plan.data)

    @cached_property
    def _reference_words(self) -> ReferenceWords:
        return self._reference.words()

    def _evaluator(self, name: str | None) -> Any:
        if name is not None and name not in self._evaluators:
            self._evaluators[name] = open_evaluator(name)
        return None if name is None else self._evaluators[name]

    @cached_property
    def _evaluators(self) -> dict[str, Any]:
        return {}


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _wait_until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        time.sleep(0.2)
