"""What a run would be: its size, its cost, and how long it takes, from one measured step."""

import os
import time
from pathlib import Path

import torch

from arcmask.data import open_prepared
from arcmask.feedback import Gate
from arcmask.model import autocast, best_device
from arcmask.objective import TwoPass
from arcmask.training.checks import check_before_loading
from arcmask.training.config import TrainConfig
from arcmask.training.loop import build_feedback, build_model


def plan(config: TrainConfig, run: Path) -> str:
    """Lines for a person, after all checks; nothing is trained."""
    check_before_loading(config, run, write=False)
    corpus = open_prepared(config.data, "train")
    model = build_model(config, corpus.vocab_size, corpus.length)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    device = best_device()
    objective = TwoPass(model, build_feedback(config)).to(device).train()
    count = min(config.micro_batch, config.batch_size)
    draw = Gate(probability=1.0).draw(0, 0, count, corpus.length)
    rows, times, masked = (x.to(device) for x in (corpus.rows(range(count)), draw.time.float(), draw.masked))
    seconds = []
    for feedback in (False, True):
        began = time.monotonic()
        with autocast(config.precision, device):
            loss = objective(rows, times, masked, feedback=feedback).loss
        loss.backward()
        loss.item()  # a GPU answers when it is done
        seconds.append(time.monotonic() - began)
        objective.zero_grad()
    where = f"this machine's processor ({torch.get_num_threads()} threads)" if device.type == "cpu" else "this GPU"
    world = int(os.environ.get("WORLD_SIZE", 1))
    share = config.gate_probability if config.operator != "none" else 0.0
    step = (seconds[0] * (1 - share) + seconds[1] * share) * config.batch_size / count / world
    tokens = config.steps * config.batch_size * corpus.length
    state = 5 * 4 * parameters
    return "\n".join(
        [
            f"{parameters:,} parameters; {config.steps:,} steps of {config.batch_size} x {corpus.length} tokens, "
            f"{tokens:,} in all: {config.steps * config.batch_size / len(corpus):.2f} epochs of {len(corpus):,} rows",
            f"memory for weights, gradients, averages and moments {state / 1e9:.2f} GB; a checkpoint takes as much, "
            f"{config.keep} are kept in {run}",
            f"about {step:.1f} s a step on {where}, {step * config.steps / 3600:.1f} hours in all",
        ]
    )
