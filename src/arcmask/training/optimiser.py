"""The optimiser: learning rates, AdamW in two groups, and the running average of the weights."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from arcmask.settings.train import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """Return the factor on both learning rates in a step, counted from 0: linear warm-up, then constant or cosine."""
    warm_up = int(config.warm_up)
    if step < warm_up:
        return (step + 1) / warm_up
    if config.curve == "constant":
        return 1.0
    done = (step - warm_up) / max(1, config.steps - warm_up)
    return 0.5 * (1 + math.cos(math.pi * done))


def build_optimiser(config: TrainConfig, backbone: nn.Module, confidence: nn.Module | None) -> torch.optim.AdamW:
    """Build AdamW with a group for the backbone and one for the confidence scalars, if they are trained."""
    groups = []
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    if trained:
        groups.append({"params": trained, "base": float(config.learning_rate), "weight_decay": config.weight_decay})
    scalars = [] if confidence is None else list(confidence.parameters())
    if scalars:
        groups.append({"params": scalars, "base": config.confidence_learning_rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=float(config.learning_rate), betas=(0.9, config.beta2), eps=1e-8)


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rates of a step."""
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor


class Average:
    """The exponential moving average of all trained parameters, confidence scalars among them."""

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.shadow = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: Mapping[str, Tensor]) -> None:
        """Update the average. In the first steps the decay is smaller, so the initial weights are soon forgotten."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, shadow in self.shadow.items():
            shadow.lerp_(parameters[name].detach(), 1 - decay)

    @torch.no_grad()
    def swap(self, parameters: Mapping[str, Tensor]) -> None:
        """Exchange the averaged and the raw values; a second call restores both."""
        for name, shadow in self.shadow.items():
            raw = parameters[name].detach().clone()
            parameters[name].copy_(shadow)
            shadow.copy_(raw)
