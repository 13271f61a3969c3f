"""The training loop: step after step, each a function of the settings, its number and the state before it.

Knows the objective, the optimiser, the data and the run's folder. All that is random in a step comes from (seed, step),
so that a run that was killed and resumed is the run that was not. accelerate brings the ranks together.
"""

import math
import resource
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import (  # type: ignore[import-untyped]
    DistributedDataParallelKwargs,
    InitProcessGroupKwargs,
)
from torch import Tensor, nn

from arcmask.checkpoint import load
from arcmask.data import Batches, in_order, open_prepared
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, Gate, SoftMask
from arcmask.model import MDLM, SIZES, Wrapped, autocast
from arcmask.objective import TwoPass
from arcmask.progress import Progress
from arcmask.training.checks import check_before_loading
from arcmask.training.config import TrainConfig
from arcmask.training.metrics import Sums, Tracker
from arcmask.training.optimiser import Average, build_optimiser, rate, set_rates
from arcmask.training.state import RunFolder

STOPPED = 75  # the exit code of a run that was asked to stop, saved, and can be resumed


class Stopped(Exception):  # noqa: N818  (not an error: the run did what it was asked)
    """The run was asked to stop, and has saved."""


def train(config: TrainConfig, run: str | Path) -> Path:
    """Train, or go on training, in the folder `run`; returns its last checkpoint."""
    check_before_loading(config, Path(run))
    return Trainer(config, RunFolder(Path(run))).run()


def build_feedback(config: TrainConfig) -> SoftMask:
    """The feedback that a run trains."""
    fixed = config.fixed_weight
    confidence = (
        Confidence(scale=config.scale, centre=config.centre, steepness=config.steepness)
        if fixed is None
        else Confidence(fixed=fixed)
    )
    return SoftMask(config.operator, config.top_k, config.karcher_steps, confidence)


def build_model(config: TrainConfig, vocab_size: int, length: int) -> MDLM | Wrapped:
    """The model to train: new from the seed, or a checkpoint's, in float32 or wider."""
    changes: dict[str, Any] = {} if config.dropout is None else {"dropout": config.dropout}
    if config.init.startswith("new:"):
        size = config.init.removeprefix("new:")
        return MDLM.create(
            size, vocab_size, config.seed, model_length=max(length, SIZES[size]["model_length"]), **changes
        )
    model = load(config.init)
    if model.table.dtype != torch.float64:
        model.float()
    if config.dropout is not None and isinstance(model, MDLM):
        model.config.dropout = config.dropout
        for block in model.backbone.blocks:
            cast("Any", block).dropout = config.dropout
    return model


class Trainer:
    """A run under way."""

    def __init__(self, config: TrainConfig, folder: RunFolder) -> None:
        self.config, self.folder = config, folder
        # Every parameter takes part in every step, so that DDP need not look for those that do not.
        handlers = [
            DistributedDataParallelKwargs(find_unused_parameters=False),
            # In an experiment a rank may come late, when it has scored what an earlier run wrote.
            InitProcessGroupKwargs(timeout=timedelta(hours=12)),
        ]
        # Said outright, or several ranks without a GPU would each take themselves for the only one.
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        corpus = open_prepared(config.data, "train")
        self.batches = Batches(corpus, batch_size=config.batch_size, seed=config.seed, rank=self.rank, world=self.world)
        self.length = corpus.length
        self.gate = Gate(probability=config.gate_probability, band=config.band, reading=config.band_reading)
        self.model = build_model(config, corpus.vocab_size, corpus.length)
        corpus.check_fits(
            vocab_size=self.model.table.shape[0], mask_id=self.model.mask_id, max_length=self.model.max_length
        )
        self.model.tokenizer = corpus.tokenizer()
        self.model.feedback = build_feedback(config)
        self._prepare_model()
        self.objective = TwoPass(self.model, self.model.feedback).to(self.accelerator.device)
        self.wrapped: nn.Module = self.accelerator.prepare_model(self.objective)
        self.optimiser = build_optimiser(config, self.objective.denoiser, self.model.feedback)
        self.trained = {name: p for name, p in self.objective.named_parameters() if p.requires_grad}
        self.average = Average(self.trained, config.ema)
        self.step = 0
        self.tracker = Tracker(config, folder.path) if self.rank == 0 else None

    def _prepare_model(self) -> None:
        model = self.model
        if self.config.freeze_backbone:
            model.requires_grad_(False)
        if isinstance(model, MDLM):
            model.backbone.checkpoint_blocks = self.config.checkpoint_blocks
            if self.config.compile_blocks:
                model.compile_blocks()

    def run(self) -> Path:
        """All steps that are left."""
        self.accelerator.wait_for_everyone()
        self._resume()
        with _asked_to_stop() as asked, self._progress() as progress:
            while self.step < self.config.steps:
                record = self._train_step()
                due = self.config.validate_every and (self.step % self.config.validate_every == 0 or self._done)
                if due:
                    record |= self._validate()
                self._log(record)
                stop = bool(self._sum(torch.tensor([float(asked())]))[0] > 0)
                if stop or self._done or self.step % self.config.save_every == 0:
                    self._save()
                if progress is not None:
                    progress.advance(1)
                if stop and not self._done:
                    raise Stopped
        newest = self.folder.newest()
        assert newest is not None
        return newest

    @property
    def _done(self) -> bool:
        return self.step >= self.config.steps

    def _train_step(self) -> dict[str, Any]:
        began = time.monotonic()
        step, config = self.step, self.config
        draw = self.gate.draw(config.seed, step, config.batch_size, self.length)
        share = config.batch_size // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        device = self.accelerator.device
        rows = self.batches.batch(step).to(device)
        dtype = self.model.table.dtype if self.model.table.dtype == torch.float64 else torch.float32
        times, masked = draw.time[mine].to(device, dtype), draw.masked[mine].to(device)
        set_rates(self.optimiser, rate(config, step))
        self.optimiser.zero_grad(set_to_none=True)
        self.wrapped.train()
        sums = torch.zeros(Sums.SIZE, dtype=torch.float64)
        starts = range(0, share, config.micro_batch)
        for number, start in enumerate(starts):
            part = slice(start, start + config.micro_batch)
            torch.manual_seed(_dropout_seed(config.seed, step, self.rank, number))
            last = number == len(starts) - 1
            hold = nullcontext() if last else self.accelerator.no_sync(self.wrapped)
            with hold:
                with autocast(config.precision, device):
                    found = self.wrapped(rows[part], times[part], masked[part], feedback=draw.feedback)
                # DDP takes the mean over ranks; the loss is divided by the global number of positions.
                scale = self.world / (config.batch_size * self.length)
                self.accelerator.backward(found.loss * scale)
            sums += Sums.of(found)
        self._refuse_non_finite(sums)
        total = self._sum(sums)
        norm = self._apply_gradients(draw.feedback)
        self.step += 1
        return Sums.record(total, config.batch_size * self.length) | {
            "feedback": draw.feedback,
            "gradient_norm": norm,
            "learning_rate": config.learning_rate * rate(config, step),
            **self._scalars(),
            "tokens_per_second": config.batch_size * self.length / (time.monotonic() - began),
            "memory_gb": _peak_memory(device),
        }

    def _apply_gradients(self, fed: bool) -> float:
        if not fed or self.config.operator == "none":
            # They took part with a zero; without a gradient AdamW leaves them and their moments alone.
            for parameter in self.model.feedback.parameters():
                parameter.grad = None
        with_gradient = [p for p in self.trained.values() if p.grad is not None]
        norm = float(torch.nn.utils.clip_grad_norm_(with_gradient, self.config.clip)) if with_gradient else 0.0
        self.optimiser.step()
        self.average.update(self.trained)
        return norm

    def _scalars(self) -> dict[str, float]:
        confidence = self.model.feedback.confidence
        if confidence.fixed is not None:
            return {}
        return {name: getattr(confidence, name).item() for name in ("scale", "centre", "steepness")}

    def _refuse_non_finite(self, sums: Tensor) -> None:
        every = self.accelerator.gather(sums[:1].float().to(self.accelerator.device))
        wrong = [rank for rank, value in enumerate(cast("Tensor", every).tolist()) if not math.isfinite(value)]
        if wrong:
            kept = self.folder.newest()
            raise ArcmaskError(
                f"the loss is not finite at step {self.step + 1} on rank {wrong[0]}; the last good checkpoint is "
                f"{'none' if kept is None else kept}"
            )

    def _sum(self, values: Tensor) -> Tensor:
        """Over ranks."""
        if self.world == 1:
            return values
        return cast("Tensor", self.accelerator.reduce(values.to(self.accelerator.device), "sum")).cpu()

    def _validate(self) -> dict[str, float]:
        """Perplexity with and without feedback, on averaged weights."""
        if self.config.validation_rows == 0:
            return {}
        corpus = open_prepared(self.config.data, "validation")
        rows = min(self.config.validation_rows, len(corpus))
        found: dict[str, float] = {}
        self.average.swap(self.trained)
        self.objective.eval()
        try:
            for name, fed in (("plain", False), ("feedback", True)):
                if fed and self.config.operator == "none":
                    continue
                nats = self._bound(corpus, rows, fed)
                found |= {f"validation_nll_{name}": nats, f"validation_perplexity_{name}": math.exp(min(nats, 700.0))}
        finally:
            self.average.swap(self.trained)
        return found

    @torch.no_grad()
    def _bound(self, corpus: Any, count: int, fed: bool) -> float:
        gate = Gate(probability=0.0)
        size, total, device = self.config.micro_batch, torch.zeros(2, dtype=torch.float64), self.accelerator.device
        for number, batch in enumerate(in_order(corpus, batch_size=size)):
            if number * size >= count:
                break
            if number % self.world != self.rank:
                continue
            batch = batch[: count - number * size]
            draw = gate.draw(0, number, *batch.shape)
            dtype = torch.promote_types(self.model.table.dtype, torch.float32)
            with autocast(self.config.precision, device):
                found = self.objective(
                    batch.to(device), draw.time.to(device, dtype), draw.masked.to(device), feedback=fed
                )
            total += torch.tensor([float(found.loss), float(batch.numel())], dtype=torch.float64)
        total = self._sum(total)
        return float(total[0] / total[1])

    def _log(self, record: Mapping[str, Any]) -> None:
        if self.rank != 0:
            return
        record = {"step": self.step, **record}
        self.folder.append(record)
        assert self.tracker is not None
        self.tracker.log(record)

    def _save(self) -> None:
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
            self.average.swap(self.trained)
            try:
                self.folder.save(self.step, self.model, tensors, counts, self.config.keep)
            finally:
                self.average.swap(self.trained)
        self.accelerator.wait_for_everyone()

    @torch.no_grad()
    def _resume(self) -> None:
        newest = self.folder.newest()
        if newest is not None:
            tensors, counts = self.folder.read(newest)
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
            self.folder.cut_metrics(self.step)
        self.accelerator.wait_for_everyone()

    def _progress(self) -> Any:
        if self.rank != 0:
            return nullcontext()
        return Progress("training", unit="steps", total=self.config.steps, done=self.step)


@contextmanager
def _asked_to_stop() -> Iterator[Any]:
    """Note SIGTERM and SIGINT in place of dying of them; a second one is not held back."""
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _dropout_seed(seed: int, step: int, rank: int, micro: int) -> int:
    return int(np.random.SeedSequence((seed, step, rank, micro)).generate_state(1, np.uint64)[0] >> 1)


def _peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
