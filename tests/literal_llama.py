"""LLaDA and Dream, written again from their description: float64, one head and one position at a time.

`logits` reads the public tensors by their public names and shares no code with the package or with transformers. Each
`wrong` argument is a mistake that must be seen.
"""

import math

import torch
from torch import Tensor

LLADA = {
    "norm1": "model.transformer.blocks.{}.attn_norm",
    "q": "model.transformer.blocks.{}.q_proj",
    "k": "model.transformer.blocks.{}.k_proj",
    "v": "model.transformer.blocks.{}.v_proj",
    "out": "model.transformer.blocks.{}.attn_out",
    "norm2": "model.transformer.blocks.{}.ff_norm",
    "gate": "model.transformer.blocks.{}.ff_proj",
    "up": "model.transformer.blocks.{}.up_proj",
    "down": "model.transformer.blocks.{}.ff_out",
    "table": "model.transformer.wte",
    "norm": "model.transformer.ln_f",
    "head": "model.transformer.ff_out",
}
DREAM = {
    "norm1": "model.layers.{}.input_layernorm",
    "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj",
    "v": "model.layers.{}.self_attn.v_proj",
    "out": "model.layers.{}.self_attn.o_proj",
    "norm2": "model.layers.{}.post_attention_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj",
    "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
    "table": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.stack([row / math.sqrt(float((row * row).mean()) + eps) * weight for row in x])


def rotate(vector: Tensor, position: int, base: float, neighbours: bool) -> Tensor:
    """Turn pair i by position / base^(2 i / width); pairs are (i, i + half), or by mistake (2 i, 2 i + 1)."""
    half, out = len(vector) // 2, vector.clone()
    for i in range(half):
        first, second = (2 * i, 2 * i + 1) if neighbours else (i, i + half)
        angle = position / base ** (2 * i / len(vector))
        a, b = vector[first], vector[second]
        out[first] = a * math.cos(angle) - b * math.sin(angle)
        out[second] = b * math.cos(angle) + a * math.sin(angle)
    return out


class Literal:
    """A model by its public tensors, and the numbers of its config.json under plain names."""

    def __init__(self, state: dict[str, Tensor], names: dict[str, str], config: dict, wrong: str = "") -> None:
        self.state = {key: value.double() for key, value in state.items()}
        self.names, self.config, self.wrong = names, config, wrong
        self.eps = config["eps"] * (10 if wrong == "epsilon" else 1)

    def linear(self, part: str, x: Tensor, layer: int = 0) -> Tensor:
        key = self.names[part].format(layer)
        bias = self.state.get(f"{key}.bias")
        y = x @ self.state[f"{key}.weight"].T
        return y if bias is None or self.wrong == "bias" else y + bias

    def norm(self, part: str, x: Tensor, layer: int = 0) -> Tensor:
        return rms_norm(x, self.state[f"{self.names[part].format(layer)}.weight"], self.eps)

    def attention(self, x: Tensor, layer: int) -> Tensor:
        heads, groups = self.config["heads"], self.config["kv_heads"]
        q, k, v = (self.linear(part, x, layer) for part in "qkv")
        width, base = q.shape[1] // heads, self.config["base"] * (2 if self.wrong == "base" else 1)
        neighbours, out = self.wrong == "pairing", torch.zeros_like(q)
        for head in range(heads):
            mine, shared = slice(head * width, (head + 1) * width), head // (heads // groups)
            theirs = slice(shared * width, (shared + 1) * width)
            queries = [rotate(row, i, base, neighbours) for i, row in enumerate(q[:, mine])]
            keys = [rotate(row, i, base, neighbours) for i, row in enumerate(k[:, theirs])]
            for i, query in enumerate(queries):
                seen = i + 1 if self.wrong == "causal" else len(keys)
                scores = torch.stack([query @ key for key in keys[:seen]]) / math.sqrt(width)
                weights = torch.exp(scores) / torch.exp(scores).sum()
                out[i, mine] = weights @ v[:seen, theirs]
        return self.linear("out", out, layer)

    def mlp(self, x: Tensor, layer: int) -> Tensor:
        gate, up = self.linear("gate", x, layer), self.linear("up", x, layer)
        if self.wrong == "gate":
            gate, up = up, gate
        return self.linear("down", gate / (1 + torch.exp(-gate)) * up, layer)

    def logits(self, ids: Tensor) -> Tensor:
        """The logits (L, V) of one row of ids (L,)."""
        x = self.state[f"{self.names['table']}.weight"][ids]
        for layer in range(self.config["layers"]):
            x = x + self.attention(self.norm("norm1", x, layer), layer)
            x = x + self.mlp(self.norm("norm2", x, layer), layer)
        rows = self.linear("head", self.norm("norm", x))
        shift = self.config["shift"] != (self.wrong == "shift")
        return torch.cat([rows[:1], rows[:-1]]) if shift else rows
