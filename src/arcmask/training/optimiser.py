"""What the weights go through in a step: learning rates, AdamW in two groups, and their running average."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from arcmask.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """The factor on both learning rates in a step, counted from 0: a linear warm-up, then constant or half a cosine."""
    if step < config.warm_up:
        return (step + 1) / config.warm_up
    if config.curve == "constant":
        return 1.0
    done = (step - config.warm_up) / max(1, config.steps - config.warm_up)
    return 0.5 * (1 + math.cos(math.pi * done))


def build_optimiser(config: TrainConfig, backbone: nn.Module, confidence: nn.Module | None) -> torch.optim.AdamW:
    """AdamW with a group for the backbone and one for the confidence scalars, as far as they are trained."""
    groups = []
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    if trained:
        groups.append({"params": trained, "base": config.learning_rate, "weight_decay": config.weight_decay})
    scalars = [] if confidence is None else list(confidence.parameters())
    if scalars:
        groups.append({"params": scalars, "base": config.confidence_learning_rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.beta2), eps=1e-8)


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Put a step's learning rates in place."""
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
        """Take one step of the average. Early on the decay is smaller, so that the start is soon forgotten."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, shadow in self.shadow.items():
            shadow.lerp_(parameters[name].detach(), 1 - decay)

    @torch.no_grad()
    def swap(self, parameters: Mapping[str, Tensor]) -> None:
        """Exchange the averaged and the raw values; a second call puts both back."""
        for name, shadow in self.shadow.items():
            raw = parameters[name].detach().clone()
            parameters[name].copy_(shadow)
            shadow.copy_(raw)
