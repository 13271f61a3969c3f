"""What a training run would take, from one measured step."""

import time
from pathlib import Path

import torch

from arcmask.data import open_prepared
from arcmask.feedback import Gate
from arcmask.model import autocast, best_device
from arcmask.objective import TwoPass
from arcmask.ranks import world_size
from arcmask.rows import Rows
from arcmask.settings import Precision
from arcmask.settings.train import TrainConfig
from arcmask.training.checks import STATE_BYTES, build_feedback, check_before_loading
from arcmask.training.start import build_model, calibrate, describe_start, measure_entropies


def measure_step(objective: TwoPass, rows: Rows, precision: Precision = "auto") -> tuple[float, float]:
    """Return the seconds of a training step on rows (B, L) without and with feedback."""
    device = objective.denoiser.table.device
    draw = Gate(probability=1.0).draw(0, 0, *rows.shape)
    seconds = []
    for feedback in (False, False, True):  # the first one warms up
        start = time.monotonic()
        with autocast(precision, device):
            loss = objective(
                rows.to(device), draw.time.float().to(device), draw.masked.to(device), feedback=feedback
            ).loss
        loss.backward()
        loss.item()  # waits for a GPU
        seconds.append(time.monotonic() - start)
        objective.zero_grad()
    return seconds[1], seconds[2]


def describe_training(config: TrainConfig, run: Path) -> str:
    """Check the settings, measure a step, and describe the run; nothing is written."""
    config = check_before_loading(config, run)
    corpus = open_prepared(config.data, "train")
    device = best_device()
    model = build_model(config, corpus).to(device)
    entropy = measure_entropies(config, corpus, model)
    config = calibrate(config, entropy)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    count = min(config.micro_batch, config.batch_size)
    feedback = build_feedback(config)
    objective = TwoPass(model, feedback).to(device).train()
    plain, with_feedback = measure_step(objective, corpus.rows(range(min(count, len(corpus)))), config.precision)
    share = config.gate_probability if config.operator != "none" else 0.0
    world = world_size()
    step = (plain * (1 - share) + with_feedback * share) * config.batch_size / count / world
    machine = f"this machine's processor ({torch.get_num_threads()} threads)" if device.type == "cpu" else "this GPU"
    tokens = config.steps * config.batch_size * corpus.length
    epochs = config.steps * config.batch_size / len(corpus)
    extreme = feedback.confidence.describe_extreme(feedback.confidence(entropy.to(device)))
    weights = [describe_start(config, entropy), *([] if extreme is None else [extreme])]
    return "\n".join(
        [
            f"{parameters:,} parameters; {config.steps:,} steps of {config.batch_size} x {corpus.length} tokens, "
            f"{tokens:,} in all: {epochs:.2f} epochs of {len(corpus):,} rows",
            f"memory for weights, gradients, averages and moments: {STATE_BYTES * parameters / 1e9:.2f} GB; a "
            f"checkpoint has the same size, and {config.keep} are kept in {run}",
            f"about {step:.1f} s per step on {machine}, {step * config.steps / 3600:.1f} hours in all",
            *(weights if config.learns_weight else []),
        ]
    )
