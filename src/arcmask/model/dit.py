"""The Diffusion Transformer of MDLM, from embeddings to the input of its output layer.

This module knows embeddings and hidden states, not tokens, masks or files. Attribute names are the keys of the released
checkpoint. The comments name the details that its config.json leaves out and that the logits depend on.

Shapes: B sequences, L positions, D width, H heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from arcmask.model.config import MDLMConfig
from arcmask.model.inputs import ModelInput, embed

FREQUENCIES = 256  # sinusoids of the time embedding
MAX_PERIOD = 10000.0  # of these sinusoids, and the base of the rotary angles
MLP_RATIO = 4


class VocabEmbedding(nn.Module):
    """The table (V, D) as a parameter named `embedding`, as in the released files. It embeds any kind of input."""

    def __init__(self, vocab_size: int, hidden_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw uniform weights, as in `nn.Linear`."""
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, source: ModelInput | Tensor) -> Tensor:
        return embed(source, self.embedding)


class ZeroLinear(nn.Linear):
    """A linear layer that starts at zero. The blocks of a new model are the identity, and its predictions uniform."""

    def reset_parameters(self) -> None:
        """Set weight and bias to zero."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Norm(nn.Module):
    """LayerNorm with a weight and no bias, in float32, followed by the modulation x * (1 + scale) + shift.

    The modulation is one row for all sequences. It is folded into the weight and bias of the norm, which saves an
    intermediate result.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            weight = self.weight.to(wide) * (1 + scale.to(wide))
            y = functional.layer_norm(x.to(wide), x.shape[-1:], weight, shift.to(wide), eps=1e-5)
        return y.to(x.dtype)


class TimeEmbedding(nn.Module):
    """Map noise levels (B,) to (B, C): 256 sinusoids, cosines first, and two layers with SiLU in between."""

    def __init__(self, cond_dim: int) -> None:
        super().__init__()
        first, second = nn.Linear(FREQUENCIES, cond_dim), nn.Linear(cond_dim, cond_dim)
        self.mlp = nn.Sequential(first, nn.SiLU(), second)

    def forward(self, sigma: Tensor) -> Tensor:
        half = FREQUENCIES // 2
        exponents = torch.arange(half, dtype=torch.float64, device=sigma.device) / half
        angles = sigma.double().unsqueeze(-1) * MAX_PERIOD**-exponents
        sinusoids = torch.cat([angles.cos(), angles.sin()], dim=-1)
        return self.mlp(sinusoids.to(next(self.parameters()).dtype))


class Rotary(nn.Module):
    """Rotary position angles.

    The checkpoint stores the inverse frequencies, but they are computed again in float32: the buffer would lose
    precision when a model is cast to bfloat16.
    """

    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.register_buffer("inv_freq", self.frequencies(torch.device("cpu")))

    def frequencies(self, device: torch.device) -> Tensor:
        """Return the inverse frequencies (head_dim / 2,) in float32."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        return 1.0 / MAX_PERIOD**exponents

    def forward(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines (L, head_dim) of the angles of all positions."""
        positions = torch.arange(length, dtype=torch.float32, device=device)
        angles = torch.outer(positions, self.frequencies(device)).repeat(1, 2)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x (..., L, head_dim) by position. Pairs are (i, i + head_dim / 2), not neighbours."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Block(nn.Module):
    """Attention and MLP, each with a shift, a scale and a gate from the conditioning."""

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__()
        width = config.hidden_dim
        self.n_heads = config.n_heads
        self.dropout = config.dropout
        self.norm1 = Norm(width)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.norm2 = Norm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, MLP_RATIO * width), nn.GELU(approximate="tanh"), nn.Linear(MLP_RATIO * width, width)
        )
        self.adaLN_modulation = ZeroLinear(config.cond_dim, 6 * width)

    def forward(self, x: Tensor, condition: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None = None) -> Tensor:
        # Shift, scale and gate of the attention come first, then those of the MLP.
        modulation = self.adaLN_modulation(condition).squeeze(0).chunk(6, dim=-1)
        attention_shift, attention_scale, attention_gate, mlp_shift, mlp_scale, mlp_gate = modulation
        branch = self.attend(self.norm1(x, attention_shift, attention_scale), cos, sin, seen)
        x = x + attention_gate * functional.dropout(branch, self.dropout, self.training)
        branch = self.feed_forward(self.norm2(x, mlp_shift, mlp_scale))
        return x + mlp_gate * functional.dropout(branch, self.dropout, self.training)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None = None) -> Tensor:
        # Packed as (three, heads, head_dim); every position sees every other, except for padding.
        q, k, v = self.attn_qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        # Copying v saves memory: a view would keep the unrotated q and k alive for the backward pass.
        y = functional.scaled_dot_product_attention(q, k, v.contiguous(), attn_mask=seen)
        return self.attn_out(y.transpose(1, 2).flatten(2))

    def feed_forward(self, x: Tensor) -> Tensor:
        widen, activate, narrow = self.mlp
        wide = widen(x)
        if not torch.is_grad_enabled():
            return narrow(activate(wide))
        # The output of GELU is as large as its input and cheap to recompute, so only the input is kept.
        return checkpoint(lambda y: narrow(activate(y)), wide, use_reentrant=False, preserve_rng_state=False)


class OutputLayer(nn.Module):
    """The last norm and modulation, and the (untied) linear layer to the vocabulary."""

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__()
        self.norm_final = Norm(config.hidden_dim)
        self.linear = ZeroLinear(config.hidden_dim, config.vocab_size)
        self.adaLN_modulation = ZeroLinear(config.cond_dim, 2 * config.hidden_dim)

    def prepare(self, x: Tensor, condition: Tensor) -> Tensor:
        """Return the input (B, L, D) of the linear layer."""
        shift, scale = self.adaLN_modulation(condition).squeeze(0).chunk(2, dim=-1)
        return self.norm_final(x, shift, scale)


class DiT(nn.Module):
    """Map embeddings (B, L, D) to hidden states (B, L, D), the input of `output_layer.linear`."""

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__()
        self.vocab_embed = VocabEmbedding(config.vocab_size, config.hidden_dim)
        self.sigma_map = TimeEmbedding(config.cond_dim)
        self.rotary_emb = Rotary(config.hidden_dim // config.n_heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
        self.output_layer = OutputLayer(config)
        self.checkpoint_blocks = False  # keep only the inputs of blocks, and run them again in the backward pass

    def forward(self, embeddings: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        # Without time conditioning the noise level is zero, so one row serves all sequences.
        condition = functional.silu(self.sigma_map(torch.zeros(1, device=embeddings.device)))
        cos, sin = self.rotary_emb(embeddings.shape[1], embeddings.device)
        seen = None if attention_mask is None else attention_mask.bool()[:, None, None]
        x = embeddings
        for block in self.blocks:
            if self.checkpoint_blocks and torch.is_grad_enabled():
                x = checkpoint(block, x, condition, cos, sin, seen, use_reentrant=False)
            else:
                x = block(x, condition, cos, sin, seen)
        return self.output_layer.prepare(x, condition)
