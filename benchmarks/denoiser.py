"""Time the denoiser at the released size against its matrix products alone."""

import torch

from arcmask.model import MDLM, autocast, has_fast_bfloat16
from arcmask.settings import Precision
from benchmarks.measure import Work, fastest, peak_extra_bytes, table, use_threads

LENGTH, VOCABULARY = 1024, 50258


def products(model: MDLM, rows: int) -> Work:
    """Return the matrix products of one pass, with logits for that many rows, and nothing else."""
    width, blocks = model.config.hidden_dim, model.config.n_blocks
    heads, head_dim = model.config.n_heads, model.config.hidden_dim // model.config.n_heads
    x, wide = torch.randn(LENGTH, width), torch.randn(LENGTH, 4 * width)
    q = torch.randn(heads, LENGTH, head_dim)
    scores = torch.randn(heads, LENGTH, LENGTH)
    weights = model.state_dict()
    qkv, out, up, down = (
        weights[f"backbone.blocks.0.{name}.weight"].T for name in ("attn_qkv", "attn_out", "mlp.0", "mlp.2")
    )
    last = weights["backbone.output_layer.linear.weight"].T

    def work() -> None:
        for _ in range(blocks):
            x @ qkv
            torch.bmm(q, q.mT)
            torch.bmm(scores, q)
            x @ out
            x @ up
            wide @ down
        if rows:
            x[:rows] @ last

    return work


def passes(model: MDLM, rows: int) -> Work:
    """Return one pass: the hidden states of all positions, and the logits of that many rows."""
    embeddings = model.table[torch.randint(0, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(0))]

    def work() -> torch.Tensor:
        hidden = model.hidden(embeddings)
        return model.logits(hidden[0, :rows]) if rows else hidden

    return work


@torch.no_grad()
def run(repeats: int = 3) -> None:
    """Print the table."""
    print(f"denoiser: small, L = {LENGTH}, B = 1; {use_threads(2)}")
    model = MDLM.create("small", VOCABULARY)
    model.train(False)
    kinds = {"hidden only": 0, "logits at 16 rows": 16, "logits at half the rows": LENGTH // 2, "all logits": LENGTH}
    precisions: list[Precision] = ["float32"]
    if has_fast_bfloat16("cpu"):
        precisions.append("bfloat16")
    else:
        print("bfloat16 is skipped: this processor emulates it, which takes minutes")
    rows: list[tuple[str, ...]] = []
    for precision in precisions:
        with autocast(precision, "cpu"):
            ours = fastest({name: passes(model, count) for name, count in kinds.items()}, repeats, warm_up=1)
            floor = fastest({name: products(model, count) for name, count in kinds.items()}, repeats, warm_up=1)
            memory = {name: peak_extra_bytes(passes(model, count)) for name, count in kinds.items()}
        for name in kinds:
            seconds = f"{ours[name]:.2f}", f"{floor[name]:.2f}", f"{ours[name] / floor[name]:.2f}"
            rows.append((name, precision, *seconds, f"{memory[name] / 1e6:.0f}"))
    print("\n" + table(rows, ("pass", "precision", "seconds", "bare products", "ratio", "peak extra MB")))
