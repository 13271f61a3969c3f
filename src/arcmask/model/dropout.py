"""Change the dropout of a model of transformers, wherever it keeps it, and find out whether it has any."""

import re

import torch
from torch import Tensor, nn


def set_dropout(model: nn.Module, dropout: float) -> None:
    """Set the dropout of every layer, and in the configuration, which some layers read when they run."""
    modules = list(model.modules())
    for holder in (*modules, *(module.config for module in modules if hasattr(module, "config"))):
        if isinstance(holder, nn.modules.dropout._DropoutNd):
            holder.p = dropout
        for name, value in list(vars(holder).items()):
            if re.search("dropout|pdrop|drop_prob", name) and type(value) in (int, float):
                setattr(holder, name, dropout)


@torch.no_grad()
def is_random(model: nn.Module, embeddings: Tensor) -> bool:
    """Return whether embeddings (B, L, D) have another output in training than in evaluation."""
    was_training, device = model.training, embeddings.device
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(0)
            in_training = model.train()(inputs_embeds=embeddings).logits
            in_use = model.eval()(inputs_embeds=embeddings).logits
    finally:
        model.train(was_training)
    return not torch.allclose(in_training, in_use, rtol=1e-3, atol=1e-3)
