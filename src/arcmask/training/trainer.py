"""The training loop. A step depends only on the settings, its number and the state before it.

All random numbers of a step come from (seed, step), so a resumed run equals an unbroken one to the bit. accelerate
connects the ranks.
"""

import math
import resource
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs
from torch import Tensor, nn

from arcmask.blocks import send
from arcmask.data import Batches, RowCorpus, interleaved, open_prepared
from arcmask.errors import ArcmaskError, Stopped
from arcmask.feedback import SoftMask
from arcmask.model import Model, autocast
from arcmask.objective import TwoPass, Way, sequence_losses
from arcmask.progress import Progress, announce
from arcmask.ranks import rank
from arcmask.rows import trimmed
from arcmask.run_folder import (
    CHECKPOINTS,
    COMPLETE,
    checkpoint_step,
    interpreting,
    locked_run,
    newest_checkpoint,
    wait_for_file,
)
from arcmask.settings.train import AUTO, TrainConfig
from arcmask.training.checks import build_feedback, build_gate, check_before_loading
from arcmask.training.metrics import Recent, Sums, Tracker
from arcmask.training.optimiser import Average, build_optimiser, rate, set_rates
from arcmask.training.start import build_model, calibrate, describe_start, measure_entropies
from arcmask.training.state import TENSORS, append_metrics, cut_metrics, open_run, read_state, save_checkpoint


def train(config: TrainConfig, run: str | Path, *, model: Model | None = None, corpus: RowCorpus | None = None) -> Path:
    """Train in the folder `run`, or resume it, and return the path of the last checkpoint.

    `model`, which is changed, and `corpus` are used in place of those that the settings name.

    >>> import arcmask
    >>> from arcmask.recipes import find_recipe
    >>> config = find_recipe("sotu-tiny-spherical").train
    >>> config.operator, config.steps
    ('spherical', 500)
    >>> arcmask.training.train(config, "runs/mine")  # doctest: +SKIP
    """
    run = Path(run)
    config = check_before_loading(config, run, corpus)
    is_first = rank() == 0
    with locked_run(run) if is_first else nullcontext():
        trainer = Trainer(config, run, model, corpus)
        if is_first:  # only now: settings that are refused leave no run behind
            open_run(run, trainer.config)
        return trainer.train()


def connect() -> Accelerator:
    """Join the group of all ranks, if there are several."""
    handlers = [
        DistributedDataParallelKwargs(find_unused_parameters=False),  # every parameter takes part in every step
        # In an experiment a rank may be late because it scores the samples of an earlier run.
        InitProcessGroupKwargs(timeout=timedelta(hours=12)),
    ]
    # Without `cpu`, several ranks without a GPU would each run alone.
    # Autocast is ours: `accelerate config` may have stored another precision.
    cpu = not torch.cuda.is_available()
    return Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=handlers)


class Trainer:
    """A training run in progress."""

    def __init__(
        self, config: TrainConfig, run: Path, model: Model | None = None, corpus: RowCorpus | None = None
    ) -> None:
        self.run, self.step, self.is_extreme = run, 0, False
        self.accelerator = connect()
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.corpus = corpus = open_prepared(config.data, "train") if corpus is None else corpus
        self.batches = Batches(corpus, batch_size=config.batch_size, seed=config.seed, rank=self.rank, world=self.world)
        self.length = corpus.length
        self.gate = build_gate(config)
        self.model = build_model(config, corpus, model).to(self.accelerator.device)
        self.model.tokenizer = corpus.tokenizer()
        self.config = config = self._calibrate(config)
        self.model.feedback = self.feedback = build_feedback(config)
        if config.precision == "float64":
            self.feedback.double()
        self._prepare_model()
        self.objective = TwoPass(self.model, self.feedback).to(self.accelerator.device)
        self.wrapped: nn.Module = self.accelerator.prepare_model(self.objective)
        self.optimiser = build_optimiser(config, self.model, self.feedback)
        self.trained = {name: p for name, p in self.objective.named_parameters() if p.requires_grad}
        self.average = Average(self.trained, config.ema)

    def _calibrate(self, config: TrainConfig) -> TrainConfig:
        """Return the settings with numbers for centre and steepness, those of the first rank; describe a new run."""
        is_auto, is_new = AUTO in (config.centre, config.steepness), newest_checkpoint(self.run) is None
        values = torch.zeros(2, dtype=torch.float64)
        if self.rank == 0:
            if is_auto or (is_new and config.learns_weight):
                entropy = measure_entropies(config, self.corpus, self.model)
                config = calibrate(config, entropy)
                if config.learns_weight:
                    announce(describe_start(config, entropy))
                    self._watch(build_feedback(config), entropy)
            values = torch.tensor([float(config.centre), float(config.steepness)], dtype=torch.float64)
        centre, steepness = self._sum(values).tolist()
        return replace(config, centre=centre, steepness=steepness)

    def _watch(self, feedback: SoftMask, entropy: Tensor) -> None:
        """Say that the weights at entropies (M,) are extreme, unless that was said before."""
        options, weight = {}, feedback.confidence(entropy.to(self.model.table.device))
        if self.step:
            run = shlex.quote(str(self.run))
            options["advice"] = f"`arcmask train --init {run}` and `arcmask tune {run}` fit the confidence again"
        extreme = feedback.confidence.describe_extreme(weight, **options)
        if extreme is not None and not self.is_extreme:
            announce(f"after step {self.step}: {extreme}" if self.step else extreme)
        self.is_extreme = extreme is not None

    def _prepare_model(self) -> None:
        model = self.model
        if self.config.freeze_backbone:
            model.requires_grad_(False)
        if self.config.compile_blocks:
            model.compile_blocks()

    def train(self) -> Path:
        """Train the remaining steps and return the path of the last checkpoint."""
        self.accelerator.wait_for_everyone()
        self._resume()
        self.tracker = Tracker(self.config, self.run) if self.rank == 0 else None
        validate_every, save_every = int(self.config.validate_every), int(self.config.save_every)
        recent = Recent()
        with _stop_signals() as is_stopping, self._progress() as progress:
            while self.step < self.config.steps:
                record = self._train_step()
                due = validate_every and (self.step % validate_every == 0 or self._done)
                if due:
                    record |= self._validate()
                self._log(record)
                stop = bool(self._sum(torch.tensor([float(is_stopping())]))[0] > 0)
                if stop or self._done or self.step % save_every == 0:
                    self._save()
                if progress is not None:
                    progress.advance(1, recent.add(record))
                if stop and not self._done:
                    raise Stopped(f"stopped and saved; run the same command again to resume {self.run}")
        return self._wait_for_checkpoint(self.step)

    @property
    def _done(self) -> bool:
        return self.step >= self.config.steps

    def _train_step(self) -> dict[str, Any]:
        start_time = time.monotonic()
        step, config = self.step, self.config
        draw = self.gate.draw(config.seed, step, config.batch_size, self.length)
        share = config.batch_size // self.world
        own = interleaved(self.rank, self.world)
        device = self.accelerator.device
        rows = send(self.batches.batch(step), device)
        dtype = self.model.table.dtype if self.model.table.dtype == torch.float64 else torch.float32
        times, masked = send(draw.time[own], device, dtype), send(draw.masked[own], device)
        set_rates(self.optimiser, rate(config, step))
        self.optimiser.zero_grad(set_to_none=True)
        self.wrapped.train()
        sums, tokens = torch.zeros(Sums.SIZE, dtype=torch.float64), self.batches.tokens(step)
        parts = max(1, share // config.micro_batch)
        for number in range(parts):
            part = interleaved(number, parts)
            part_rows, part_masked = trimmed(rows[part], masked[part])
            torch.manual_seed(_dropout_seed(config.seed, step, self.rank, number))
            last = number == parts - 1
            hold = nullcontext() if last else self.accelerator.no_sync(self.wrapped)
            with hold:
                with autocast(config.precision, device):
                    result = self.wrapped(part_rows, times[part], part_masked, feedback=draw.feedback)
                # DDP takes the mean over ranks; the loss is divided by the global number of counted tokens.
                scale = self.world / tokens
                self.accelerator.backward(result.loss * scale)
            sums += Sums.of(result)
        self._refuse_non_finite("loss", float(sums[0]))
        total = self._sum(sums)
        norm = self._apply_gradients(draw.feedback)
        self.step += 1
        return Sums.record(total, tokens) | {
            "epoch": step * config.batch_size // len(self.corpus),
            "feedback": draw.feedback,
            "gradient_norm": norm,
            "learning_rate": float(config.learning_rate) * rate(config, step),
            **self._scalars(),
            "tokens_per_second": tokens / (time.monotonic() - start_time),
            "memory_gb": _peak_memory(device),
        }

    def _apply_gradients(self, uses_feedback: bool) -> float:
        if not uses_feedback or self.config.operator == "none":
            # The scalars entered with a factor of zero. Without a gradient AdamW leaves them and their moments alone.
            for parameter in self.feedback.parameters():
                parameter.grad = None
        with_gradient = [p for p in self.trained.values() if p.grad is not None]
        norm = float(torch.nn.utils.clip_grad_norm_(with_gradient, self.config.clip)) if with_gradient else 0.0
        self._refuse_non_finite("gradient norm", norm)
        self.optimiser.step()
        self.average.update(self.trained)
        return norm

    def _scalars(self) -> dict[str, float]:
        confidence = self.feedback.confidence
        if confidence.fixed is not None:
            return {}
        names = ("scale", "centre", "steepness")
        values = torch.stack([getattr(confidence, name) for name in names]).tolist()  # one transfer for all three
        return dict(zip(names, values, strict=True))

    def _refuse_non_finite(self, name: str, value: float) -> None:
        """Raise on all ranks if a number is not finite on any of them."""
        values = [value]
        if self.world > 1:
            values = self.accelerator.gather(torch.tensor(values, device=self.accelerator.device)).tolist()
        ranks = [rank for rank, number in enumerate(values) if not math.isfinite(number)]
        if ranks:
            raise ArcmaskError(
                f"the {name} is not finite at step {self.step + 1} on rank {ranks[0]}; the last good checkpoint is "
                f"{newest_checkpoint(self.run) or 'none'}"
            )

    def _sum(self, values: Tensor) -> Tensor:
        """Sum a tensor over all ranks."""
        if self.world == 1:
            return values
        total: Tensor = self.accelerator.reduce(values.to(self.accelerator.device), "sum")
        return total.cpu()

    def _validate(self) -> dict[str, float]:
        """Return the validation loss and perplexity of the averaged weights, without and with feedback."""
        if self.config.validation_rows == 0:
            return {}
        corpus = self.corpus.held_out
        assert corpus is not None
        rows, size = min(self.config.validation_rows, len(corpus)), self.config.micro_batch
        metrics: dict[str, float] = {}
        self.average.swap(self.trained)
        try:
            names: dict[Way, str] = {"plain": "plain"}
            if self.config.operator != "none":
                names["two_pass"] = "feedback"
            batches = (corpus.rows(range(start, min(start + size, rows))) for start in range(0, rows, size))
            with autocast(self.config.precision, self.accelerator.device):
                losses, tokens = sequence_losses(self.objective, batches, list(names), rank=self.rank, world=self.world)
            for way, name in names.items():
                sums = [(losses[way] / self.length).sum(), (tokens / self.length).sum()]
                total, count = self._sum(torch.tensor(sums, dtype=torch.float64)).tolist()
                nats = total / count
                metrics |= {f"validation_nll_{name}": nats, f"validation_perplexity_{name}": math.exp(min(nats, 700.0))}
            if self.rank == 0 and self.config.learns_weight:
                self._watch(self.feedback, measure_entropies(self.config, self.corpus, self.model))
        finally:
            self.average.swap(self.trained)
        return metrics

    def _log(self, record: Mapping[str, Any]) -> None:
        if self.rank != 0:
            return
        record = {"step": self.step, **record}
        append_metrics(self.run, record)
        assert self.tracker is not None
        self.tracker.log(record)

    def _save(self) -> None:
        for name, parameter in self.trained.items():  # equal on all ranks, so all of them stop
            if not bool(torch.isfinite(parameter).all()):
                raise ArcmaskError(
                    f"the weights {name} are not finite after step {self.step}; the last good checkpoint is "
                    f"{newest_checkpoint(self.run) or 'none'}"
                )
        if self.rank == 0:
            tensors = {f"raw.{name}": p.detach().clone() for name, p in self.trained.items()}
            tensors |= {f"average.{name}": shadow.clone() for name, shadow in self.average.shadow.items()}
            steps = {}
            for name, parameter in self.trained.items():
                moments = self.optimiser.state.get(parameter)
                if moments:
                    tensors |= {f"{key}.{name}": moments[key] for key in ("exp_avg", "exp_avg_sq")}
                    steps[name] = float(moments["step"])
            counts = {"step": self.step, "updates": self.average.updates, "optimiser_steps": steps}
            counts |= {"ranks": self.world}
            self.average.swap(self.trained)
            try:
                model = deepcopy(self.model).float() if self.config.precision == "float64" else self.model
                save_checkpoint(self.run, self.step, model, tensors, counts, self.config.keep)
            finally:
                self.average.swap(self.trained)
        self.accelerator.wait_for_everyone()

    @torch.no_grad()
    def _resume(self) -> None:
        newest = self._agree_on_checkpoint()
        if newest is not None:
            tensors, counts = read_state(newest)
            with interpreting(newest / TENSORS, "the state of this run"):
                for name, parameter in self.trained.items():
                    parameter.copy_(tensors[f"raw.{name}"])
                    self.average.shadow[name].copy_(tensors[f"average.{name}"])
                    if name in counts["optimiser_steps"]:
                        self.optimiser.state[parameter] = {
                            "step": torch.tensor(counts["optimiser_steps"][name]),
                            "exp_avg": tensors[f"exp_avg.{name}"].to(parameter.device),
                            "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(parameter.device),
                        }
            self.average.updates, self.step = counts["updates"], counts["step"]
        if self.rank == 0:
            cut_metrics(self.run, self.step)
        self.accelerator.wait_for_everyone()

    def _agree_on_checkpoint(self) -> Path | None:
        """Return the newest checkpoint that the first rank sees. On a shared folder others may see it later."""
        newest = newest_checkpoint(self.run)
        step = checkpoint_step(newest) if newest is not None and self.rank == 0 else 0
        step = int(self._sum(torch.tensor([step], dtype=torch.int64)))
        return self._wait_for_checkpoint(step) if step else None

    def _wait_for_checkpoint(self, step: int) -> Path:
        checkpoint = self.run / CHECKPOINTS / f"step-{step:07d}"
        wait_for_file(checkpoint / COMPLETE)
        return checkpoint

    def _progress(self) -> Any:
        if self.rank != 0:
            return nullcontext()
        return Progress("training", unit="steps", total=self.config.steps, done=self.step)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Record SIGTERM and SIGINT instead of ending at once; a second signal ends the process."""
    received: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        received.append(number)
        for each in handlers:
            signal.signal(each, signal.SIG_DFL)

    handlers = {number: signal.signal(number, record) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _dropout_seed(seed: int, step: int, rank: int, micro: int) -> int:
    return int(np.random.SeedSequence((seed, step, rank, micro)).generate_state(1, np.uint64)[0] >> 1)


def _peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
