"""Small models for tests. All weights are drawn from a seed and none is zero, so every part affects the logits."""

import torch

from arcmask.model import MDLM


def small_mdlm(vocab_size: int = 23, seed: int = 0, **changes) -> MDLM:
    """Return a small model in evaluation mode; `changes` replace single settings of its configuration."""
    sizes = {"hidden_dim": 32, "cond_dim": 8, "n_blocks": 3, "n_heads": 4, "model_length": 16, "dropout": 0.0}
    model = MDLM.create("tiny", vocab_size, **{**sizes, **changes})
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    return model.eval()


def some_tokens(b: int = 2, length: int = 10, vocab_size: int = 23) -> torch.Tensor:
    """Return tokens (B, L) with a mask at every third position."""
    tokens = torch.randint(0, vocab_size - 1, (b, length), generator=torch.Generator().manual_seed(1))
    tokens[:, ::3] = vocab_size - 1
    return tokens
