"""Carry out a plan. Every cell is a folder with its result, and a result that exists is not computed again.

With several ranks, all of them train and sample together. When all arms of a seed have been sampled, each rank computes
its share of the bounds and scores, a cell at a time. Ranks wait for files and not for each other, so a rank that scores
for an hour breaks no collective operation.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list

import arcmask
from arcmask.checkpoint import load, load_for_use
from arcmask.data import open_prepared, prepare
from arcmask.diagnostics.inspection import inspect
from arcmask.errors import ArcmaskError
from arcmask.estimates.phrases import format_duration
from arcmask.evaluation import Neighbours, Reference, evaluate_set, likelihood, open_evaluator, read_samples
from arcmask.experiment.clock import Clock
from arcmask.experiment.estimate import find_costs
from arcmask.experiment.held_out import held_out_prompts
from arcmask.experiment.plan_checks import check_fit, check_plan, check_scorable
from arcmask.experiment.results import (
    count_lines,
    is_inspected,
    is_measured,
    is_scored,
    is_trained,
    trained_steps,
)
from arcmask.files import json_bytes, write_whole, writing
from arcmask.progress import announce
from arcmask.ranks import rank, world_size
from arcmask.run_folder import (
    INSPECTION,
    LIKELIHOOD,
    LOCK,
    PLAN,
    SAMPLES,
    SCORES,
    TIMES,
    TIMING,
    TRAINING,
    TUNED,
    cell_folder,
    locked_run,
    prompts_file,
    wait_for_file,
)
from arcmask.sampling.generate import generate
from arcmask.settings.evaluate import PerplexitySettings
from arcmask.settings.experiment import Plan, Tuning
from arcmask.settings.train import TrainConfig
from arcmask.training import train
from arcmask.training.trainer import connect
from arcmask.tuning import fit


@dataclass(frozen=True)
class Stage:
    """One piece of work. All ranks share a stage that is `together`; any other belongs to one rank."""

    kind: str
    name: str
    seconds: float  # an estimate
    together: bool
    is_done: Callable[[], bool]
    run: Callable[[], object]
    share_done: Callable[[], float] = float  # of a stage that was interrupted; 0 by default

    def seconds_left(self) -> float:
        """Return the estimated seconds of what is not done yet."""
        return 0.0 if self.is_done() else self.seconds * (1 - self.share_done())


def reproduce(plan: Plan, folder: str | Path | None = None, command: str | None = None) -> Path:
    """Carry out a plan in a folder, or resume it, and return the folder, by default runs/RECIPE.

    A folder of a plan with fewer seeds, budgets, arms or samples is extended: what it has is kept.

    `command` is the command line that repeats the experiment; the report shows it.

    >>> import arcmask
    >>> from arcmask.recipes import find_experiment
    >>> arcmask.experiment.reproduce(find_experiment("quickstart"))  # doctest: +SKIP
    """
    experiment = Experiment(plan, plan.folder if folder is None else Path(folder))
    with writing(experiment.folder), locked_run(experiment.folder) if experiment.rank == 0 else nullcontext():
        experiment.open(command or f"arcmask reproduce {plan.recipe}")
        experiment.run()
    return experiment.folder


class Experiment:
    """An experiment in progress."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self._cache = plan, folder, folder / "cache"
        self.rank, self.world = rank(), world_size()
        self._open_evaluator = cache(open_evaluator)
        self._reference_words = cache(lambda: Reference(plan.data).words())
        self._neighbours = cache(lambda: Neighbours.open(plan.data) if plan.generation.nearest else None)

    def open(self, command: str) -> None:
        """Check the plan, open the evaluators, prepare the data, and create the folder or check that it fits."""
        generation, settings, path = self.plan.generation, self.plan.to_json(), self.folder / PLAN
        if self.rank > 0:
            wait_for_file(self.folder / LOCK)  # which the first rank holds; raises if the folder is not shared
        check_plan(self.plan, self.folder)
        if self.plan.budgets and self.rank == 0:  # before any training, so that a missing evaluator is noticed now
            check_scorable(self.plan, self._evaluator(generation.evaluator))
            self._evaluator(generation.features)
            self._open_evaluator.cache_clear()  # training needs the memory
        if self.rank == 0:  # before the data are prepared, which can take hours
            check_fit(self.plan, self.folder, None if self.plan.pretrain is not None else load(self.plan.base))
        if self.plan.prepare is not None:
            prepare(self.plan.prepare)  # by the first rank; the others wait
        if self.plan.pretrain is not None:
            self._train_base(self.plan.pretrain)
        base = load(self.plan.base)
        self.costs = find_costs(self.plan)
        if self.rank == 0:
            check_fit(self.plan, self.folder, base)
            self._write_plan(path, settings | {"command": command})
        else:
            _wait_until(path.exists)
        if self.plan.budgets and generation.ends is not None:
            self._write_prompts()

    def _train_base(self, config: TrainConfig) -> None:
        """Train the base that all arms start from, unless it is there."""
        if not self._agree([is_trained(Path(self.plan.base), config.steps)])[0]:
            if self.rank == 0:
                announce(f"train the base in {self.plan.base}: {config.steps} steps")
            train(config, self.plan.base)
        _wait_until(partial(is_trained, Path(self.plan.base), config.steps))

    def _write_plan(self, path: Path, settings: dict[str, Any]) -> None:
        index = open_prepared(self.plan.data).index
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        if misfits := self.plan.misfits(index.settings):
            settings["protocol"] = None
            announce(f"the report leaves out the paper's values: of {self.plan.data}, {' and '.join(misfits)}")
        settings |= {
            "corpus": index.settings["corpus"].split(" ")[0],
            "kind": index.settings.get("kind"),
            "tokenizer": index.tokenizer,
            "environment": {
                "arcmask": arcmask.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {gpu}",
            },
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json_bytes(settings))

    def _write_prompts(self) -> None:
        """Write the prompts of each seed, by the first rank; the others wait. A larger plan adds lines."""
        corpus, generation = open_prepared(self.plan.data, "validation"), self.plan.generation
        paths = {seed: prompts_file(self.folder, seed) for seed in self.plan.seeds}
        for seed, path in paths.items() if self.rank == 0 else ():
            lines = [json.dumps(prompt) + "\n" for prompt in held_out_prompts(corpus, generation, seed)]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, "".join(lines).encode())
        _wait_until(lambda: all(count_lines(path) >= generation.samples for path in paths.values()))

    def run(self) -> None:
        """Run all stages that are not done, and announce each with the time left."""
        stages = list(self.stages())
        done = self._agree([stage.is_done() for stage in stages])
        owner = assign(stages, done, self.world)
        is_ours = [stage.together or owner.get(number) == self.rank for number, stage in enumerate(stages)]
        clock = Clock(
            [(stage.kind, stage.seconds_left() if own else 0.0) for stage, own in zip(stages, is_ours, strict=True)],
            self._cache / TIMES if self.rank == 0 else None,
        )
        for number, stage in enumerate(stages):
            if done[number]:
                continue
            if is_ours[number] and self.rank == owner.get(number, 0):
                left = format_duration(clock.left(number))
                announce(f"[{number + 1} of {len(stages)}] {stage.name}; about {left} left")
            if stage.together:
                self._open_evaluator.cache_clear()  # training and sampling need the memory
            if is_ours[number]:
                with clock.measuring(number):
                    stage.run()
            if stage.together:
                _wait_until(stage.is_done)
            elif is_ours[number] and not stage.is_done():  # the other ranks would wait for ever
                raise ArcmaskError(f"{stage.name} has ended without its result")
        for stage in stages:
            _wait_until(stage.is_done)

    def _agree(self, done: list[bool]) -> list[bool]:
        """Return which stages the first rank finds done. Another machine may see a file later."""
        if self.world > 1:
            connect()
            broadcast_object_list(done)
        return done

    def stages(self) -> Iterator[Stage]:
        """Yield the stages in order: the base, then seed by seed, so that the results so far can be compared."""
        plan, costs = self.plan, self.costs
        config = plan.inspection(self.folder / INSPECTION)
        yield Stage(
            "inspection",
            f"inspect {plan.base}",
            costs.inspection(),
            False,
            partial(is_inspected, config),
            partial(inspect, config),
        )
        for arm, settings in plan.arms.items():
            if settings.tune is not None:
                run = partial(self._tune, arm, settings.tune)
                seconds, is_done = costs.tuning(settings.tune), partial(self._is_tuned, arm)
                yield Stage("tuning", f"tune {arm}", seconds, False, is_done, run)
        for seed in plan.seeds:
            for arm in plan.arms:
                yield from self._training(arm, seed)
                for budget in plan.budgets:
                    yield self._sampling(arm, seed, budget)
            for arm in plan.arms:
                yield Stage(
                    "likelihood",
                    f"likelihood of {arm}, seed {seed}",
                    costs.likelihood(plan.arms[arm]),
                    False,
                    partial(is_measured, cell_folder(self.folder, arm, seed) / LIKELIHOOD, seed),
                    partial(self._likelihood, arm, seed),
                )
            for arm, budget in product(plan.arms, plan.budgets):
                cell = cell_folder(self.folder, arm, seed, budget)
                yield Stage(
                    "scoring",
                    f"scores of {self._samples_of(arm, seed, budget)}",
                    costs.scoring(),
                    False,
                    partial(is_scored, cell / SCORES, plan.generation.samples),
                    partial(self._score, cell, seed),
                )
        for ablation in plan.ablations:
            yield from self._training(ablation, plan.seeds[0])

    def _training(self, arm: str, seed: int) -> Iterator[Stage]:
        """Yield the training run of an arm or an ablation, if it is trained."""
        config, run = self.plan.train(arm, seed), cell_folder(self.folder, arm, seed) / TRAINING
        if config is not None:
            yield Stage(
                "training",
                f"train {arm}, seed {seed}: {config.steps} steps",
                self.costs.training(config),
                True,
                partial(is_trained, run, config.steps),
                partial(train, config, run),
                lambda: trained_steps(run) / config.steps,
            )

    def _sampling(self, arm: str, seed: int, budget: int) -> Stage:
        """Return the stage that draws the samples of a cell."""
        count, path = self.plan.generation.samples, cell_folder(self.folder, arm, seed, budget) / SAMPLES
        return Stage(
            "sampling",
            self._samples_of(arm, seed, budget),
            self.costs.sampling(self.plan.arms[arm], budget),
            True,
            lambda: count_lines(path) >= count and path.with_name(TIMING).exists(),
            partial(self._generate, arm, seed, budget, path),
            lambda: min(1.0, count_lines(path) / count),
        )

    def _samples_of(self, arm: str, seed: int, budget: int) -> str:
        return f"{self.plan.generation.samples} samples of {arm}, seed {seed}, {budget} steps"

    def _tune(self, arm: str, tuning: Tuning) -> None:
        """Fit feedback to the base, and write the base with it."""
        rows, denoiser = open_prepared(self.plan.data, "train"), load_for_use(self.plan.base)
        settings = (tuning.operator, tuning.fixed, tuning.goal)
        denoiser.feedback = fit(denoiser, rows.rows(rows.spread(tuning.rows)), *settings)
        denoiser.save(self.folder / arm / TUNED)

    def _is_tuned(self, arm: str) -> bool:
        return (self.folder / arm / TUNED / "config.json").exists()  # the file that is written last

    def _checkpoint(self, arm: str, seed: int) -> str:
        """Return the checkpoint of an arm and a seed; wait for a tuned one, which another rank may be writing."""
        settings = self.plan.arms[arm]
        if settings.train is not None:
            return str(cell_folder(self.folder, arm, seed) / TRAINING)
        if settings.tune is None:
            return self.plan.base
        _wait_until(partial(self._is_tuned, arm))
        return str(self.folder / arm / TUNED)

    def _likelihood(self, arm: str, seed: int) -> None:
        settings, denoiser = self.plan.arms[arm], load_for_use(self._checkpoint(arm, seed))
        if settings.train is None and settings.tune is None:
            denoiser.feedback = None  # the base as it is, whatever is stored with it
        bounds = likelihood(denoiser, self.plan.data, rows=self.plan.likelihood_rows, seed=seed)
        cell = cell_folder(self.folder, arm, seed)
        cell.mkdir(parents=True, exist_ok=True)
        write_whole(cell / LIKELIHOOD, json_bytes(bounds))

    def _generate(self, arm: str, seed: int, budget: int, path: Path) -> None:
        prompts = prompts_file(self.folder, seed)
        config = self.plan.sample(arm, self._checkpoint(arm, seed), seed, budget, path, prompts)
        denoiser = load_for_use(config.checkpoint)
        calls, start = 0, time.monotonic()
        for records in generate(config, lambda _: denoiser):
            calls += sum(record["calls"] for record in records)
        timing = path.with_name(TIMING)  # the report shows the time of a call
        if self.rank == 0 and (calls or not timing.exists()):
            write_whole(timing, json_bytes({"calls": calls, "seconds": time.monotonic() - start}))

    def _score(self, cell: Path, seed: int) -> None:
        generation, samples = self.plan.generation, read_samples(str(cell / SAMPLES))
        references = None
        if generation.features is not None:
            references = Reference(self.plan.data).texts(generation.samples, seed)
        record = evaluate_set(
            samples.texts,
            token_lists=samples.token_lists,
            tokenizer=open_prepared(self.plan.data).index.tokenizer,
            reference_words=self._reference_words(),
            evaluator=self._evaluator(generation.evaluator),
            features=self._evaluator(generation.features),
            perplexity=PerplexitySettings(start=generation.start),
            batch_tokens=generation.evaluator_batch,
            mauve_seed=generation.mauve_seed,
            kmeans_seeds=generation.kmeans_seeds,
            mauve_reference=references,
            neighbours=self._neighbours(),
            seed=seed,
            cache=self._cache,
            source=SAMPLES,
        )
        write_whole(cell / SCORES, json_bytes(record))

    def _evaluator(self, name: str | None) -> Any:
        return None if name is None else self._open_evaluator(name, precision=self.plan.generation.evaluator_precision)


def assign(stages: Sequence[Stage], done: Sequence[bool], world: int) -> dict[int, int]:
    """Return the rank of each stage that is left and belongs to one rank, by its number. The ranks take turns."""
    alone = [number for number, stage in enumerate(stages) if not (done[number] or stage.together)]
    return {number: turn % world for turn, number in enumerate(alone)}


def _wait_until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        time.sleep(0.2)
