"""The Diffusion Transformer, written again from the published facts: float64, one head and one position at a time.

It reads a state dict by its keys and shares no code with the package.
"""

import math

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weight


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def rotate(vector: Tensor, position: int) -> Tensor:
    """Pairs (i, i + half) are turned by position / 10000^(2 i / width)."""
    width = len(vector)
    half = width // 2
    out = vector.clone()
    for i in range(half):
        angle = position / 10000 ** (2 * i / width)
        a, b = vector[i], vector[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def attention(x: Tensor, qkv_weight: Tensor, heads: int) -> Tensor:
    """One sequence (L, D) -> (L, D); the rows of the weight are packed as (three, heads, head_dim)."""
    length, width = x.shape
    head_dim = width // heads
    out = torch.zeros_like(x)
    for h in range(heads):
        q, k, v = (
            x @ qkv_weight[part * width + h * head_dim : part * width + (h + 1) * head_dim].T for part in range(3)
        )
        q = torch.stack([rotate(q[i], i) for i in range(length)])
        k = torch.stack([rotate(k[i], i) for i in range(length)])
        scores = (q @ k.T) / math.sqrt(head_dim)
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        weights = weights / weights.sum(-1, keepdim=True)
        out[:, h * head_dim : (h + 1) * head_dim] = weights @ v
    return out


def logits(state: dict[str, Tensor], embeddings: Tensor, heads: int) -> Tensor:
    """One sequence of embeddings (L, D) -> (L, V)."""
    state = {key.removeprefix("backbone."): tensor.double() for key, tensor in state.items()}
    x = embeddings.double()
    # A noise level of zero: 128 cosines of zero, then 128 sines of zero.
    time = torch.cat([torch.ones(128), torch.zeros(128)]).double()
    c = state["sigma_map.mlp.0.weight"] @ time + state["sigma_map.mlp.0.bias"]
    c = state["sigma_map.mlp.2.weight"] @ silu(c) + state["sigma_map.mlp.2.bias"]
    c = silu(c)
    width = x.shape[1]
    block = 0
    while f"blocks.{block}.norm1.weight" in state:
        here = {k.removeprefix(f"blocks.{block}."): v for k, v in state.items() if k.startswith(f"blocks.{block}.")}
        six = here["adaLN_modulation.weight"] @ c + here["adaLN_modulation.bias"]
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (six[i * width : (i + 1) * width] for i in range(6))
        y = layer_norm(x, here["norm1.weight"]) * (1 + scale_a) + shift_a
        x = x + gate_a * (attention(y, here["attn_qkv.weight"], heads) @ here["attn_out.weight"].T)
        y = layer_norm(x, here["norm2.weight"]) * (1 + scale_m) + shift_m
        y = gelu_tanh(y @ here["mlp.0.weight"].T + here["mlp.0.bias"])
        x = x + gate_m * (y @ here["mlp.2.weight"].T + here["mlp.2.bias"])
        block += 1
    two = state["output_layer.adaLN_modulation.weight"] @ c + state["output_layer.adaLN_modulation.bias"]
    shift, scale = two[:width], two[width:]
    y = layer_norm(x, state["output_layer.norm_final.weight"]) * (1 + scale) + shift
    return y @ state["output_layer.linear.weight"].T + state["output_layer.linear.bias"]
