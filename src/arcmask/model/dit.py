"""The Diffusion Transformer of MDLM, from embeddings to what its output layer multiplies.

Knows embeddings and hidden states, not tokens, masks or files. Attribute names are the released checkpoint's keys. The
details that its config.json does not mention are in the comments: without each of them the logits are others.

Shapes: B sequences, L positions, D width, H heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from arcmask.model.config import MDLMConfig

FREQUENCIES = 256  # sinusoids of the time embedding
MAX_PERIOD = 10000.0  # of these, and the base of the rotary ones
MLP_RATIO = 4


class VocabEmbedding(nn.Module):
    """The (V, D) table; a bare parameter named `embedding`, as in the released files."""

    def __init__(self, vocab_size: int, hidden_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform, as in `nn.Linear`."""
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.embedding)


class ZeroLinear(nn.Linear):
    """A linear layer that starts at zero: with gates and output at zero a new model is the identity, and flat."""

    def reset_parameters(self) -> None:
        """Zeros."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Norm(nn.Module):
    """LayerNorm with a weight and no bias, in float32 whatever comes in; and the conditioning's say in its result.

    That is x * (1 + scale) + shift, one row for all sequences. It goes into the norm's own weight and bias, so that
    nothing in between is computed or kept.
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
    """Noise level (B,) -> (B, C): 256 sinusoids, cosines first, and two layers with SiLU between."""

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
    """Rotary position angles. The layout stores the inverse frequencies; they are computed anew, in float32.

    Taken from the buffer they would lose their digits when a model is cast to bfloat16.
    """

    inv_freq: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.register_buffer("inv_freq", self.frequencies(torch.device("cpu")))

    def frequencies(self, device: torch.device) -> Tensor:
        """(head_dim / 2,) in float32."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        return 1.0 / MAX_PERIOD**exponents

    def forward(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines (L, head_dim) of every position's angles."""
        positions = torch.arange(length, dtype=torch.float32, device=device)
        angles = torch.outer(positions, self.frequencies(device)).repeat(1, 2)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(..., L, head_dim) turned by its position: pairs are (i, i + head_dim / 2), not neighbours."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Block(nn.Module):
    """Attention and MLP, each shifted, scaled and gated by the conditioning."""

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

    def forward(self, x: Tensor, condition: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Shift, scale and gate of the attention come first, then those of the MLP.
        modulation = self.adaLN_modulation(condition).squeeze(0).chunk(6, dim=-1)
        attention_shift, attention_scale, attention_gate, mlp_shift, mlp_scale, mlp_gate = modulation
        branch = self.attend(self.norm1(x, attention_shift, attention_scale), cos, sin)
        x = x + attention_gate * functional.dropout(branch, self.dropout, self.training)
        branch = self.feed_forward(self.norm2(x, mlp_shift, mlp_scale))
        return x + mlp_gate * functional.dropout(branch, self.dropout, self.training)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        # Packed as (three, heads, head_dim); every position sees every other.
        q, k, v = self.attn_qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        # A copy of v costs less than what a view of it would keep for the backward pass: q and k before their turn.
        y = functional.scaled_dot_product_attention(q, k, v.contiguous())
        return self.attn_out(y.transpose(1, 2).flatten(2))

    def feed_forward(self, x: Tensor) -> Tensor:
        widen, activate, narrow = self.mlp
        wide = widen(x)
        if not torch.is_grad_enabled():
            return narrow(activate(wide))
        # What GELU gives is as large as what it takes, and cheap to compute again: only one of them is kept.
        return checkpoint(lambda y: narrow(activate(y)), wide, use_reentrant=False, preserve_rng_state=False)


class OutputLayer(nn.Module):
    """The last norm and modulation, and the (untied) product with the vocabulary."""

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__()
        self.norm_final = Norm(config.hidden_dim)
        self.linear = ZeroLinear(config.hidden_dim, config.vocab_size)
        self.adaLN_modulation = ZeroLinear(config.cond_dim, 2 * config.hidden_dim)

    def prepare(self, x: Tensor, condition: Tensor) -> Tensor:
        """What the product is applied to, row by row."""
        shift, scale = self.adaLN_modulation(condition).squeeze(0).chunk(2, dim=-1)
        return self.norm_final(x, shift, scale)


class DiT(nn.Module):
    """Embeddings (B, L, D) -> hidden states (B, L, D), of which `output_layer.linear` makes logits."""

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__()
        self.vocab_embed = VocabEmbedding(config.vocab_size, config.hidden_dim)
        self.sigma_map = TimeEmbedding(config.cond_dim)
        self.rotary_emb = Rotary(config.hidden_dim // config.n_heads)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_blocks))
        self.output_layer = OutputLayer(config)
        self.checkpoint_blocks = (
            False  # keep only the input of each block for the backward pass, and run it again there
        )

    def forward(self, embeddings: Tensor) -> Tensor:
        # Without time conditioning the noise level is always zero, and one row serves all sequences.
        condition = functional.silu(self.sigma_map(torch.zeros(1, device=embeddings.device)))
        cos, sin = self.rotary_emb(embeddings.shape[1], embeddings.device)
        x = embeddings
        for block in self.blocks:
            if self.checkpoint_blocks and torch.is_grad_enabled():
                x = checkpoint(block, x, condition, cos, sin, use_reentrant=False)
            else:
                x = block(x, condition, cos, sin)
        return self.output_layer.prepare(x, condition)
