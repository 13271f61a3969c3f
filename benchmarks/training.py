"""One two-pass training step at the released size against the plain one, with all logits in both passes."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from arcmask.feedback import SoftMask
from arcmask.model import MDLM, autocast, has_fast_bfloat16
from arcmask.objective import TwoPass
from arcmask.settings import Precision
from benchmarks.measure import peak_extra_bytes, table, use_threads
from benchmarks.plain import literal_spherical, plain_candidates

LENGTH, VOCABULARY, TIME = 1024, 50258, 0.5


def plain_loss(model: MDLM, soft: SoftMask, rows: Tensor, masked: Tensor) -> Tensor:
    """Logits and log-probabilities of all positions in both passes, and a full softmax for the entropy."""
    tokens = rows.masked_fill(masked, model.mask_id)
    embeddings = model.table[tokens]
    with torch.no_grad():
        draft = model(inputs_embeds=embeddings).logits.float()
        draft[..., model.mask_id] = -1e6
        ids, probs, entropy = plain_candidates(draft.log_softmax(-1)[masked], soft.top_k)
    weight = soft.confidence(entropy)
    blended = literal_spherical(model.table[model.mask_id], model.table[ids], probs, weight)
    embeddings = embeddings.masked_scatter(masked.unsqueeze(-1), blended.to(embeddings.dtype))
    logits = model(inputs_embeds=embeddings).logits.float()
    logits = logits.index_fill(2, torch.tensor([model.mask_id]), -1e6)
    log_probs = logits.log_softmax(-1)
    losses = -log_probs.gather(2, rows.unsqueeze(2)).squeeze(2)
    return (losses * masked).sum() / TIME


def timed(work: Callable[[], Tensor], precision: Precision, repeats: int) -> tuple[float, float]:
    """Seconds of the fastest forward and the fastest backward."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        start = time.perf_counter()
        with autocast(precision, "cpu"):
            loss = work()
        middle = time.perf_counter()
        loss.backward()
        best = [min(best[0], middle - start), min(best[1], time.perf_counter() - middle)]
    return best[0], best[1]


def run(repeats: int = 3) -> None:
    """Print the table."""
    print(f"training: small, L = {LENGTH}, B = 1, t = {TIME}, spherical, two passes; {use_threads(2)}")
    model, soft = MDLM.create("small", VOCABULARY, dropout=0.0), SoftMask()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "adaLN" in name or "output_layer.linear" in name:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=draw))
    rows = torch.randint(0, VOCABULARY - 1, (1, LENGTH), generator=draw)
    masked = torch.rand(1, LENGTH, generator=draw) < TIME
    objective = TwoPass(model, soft)
    times = torch.full((1,), TIME)

    def ours() -> Tensor:
        return objective(rows, times, masked, feedback=True).loss

    def plain() -> Tensor:
        return plain_loss(model, soft, rows, masked)

    precisions: list[Precision] = ["float32"]
    if has_fast_bfloat16("cpu"):
        precisions.append("bfloat16")
    else:
        print("bfloat16 is left out: this processor has no bfloat16 products, and emulated ones take minutes")
    ours().backward()  # gradients exist from here on, and do not count as extra
    base = sum(timed(plain, "float32", repeats))
    found: list[tuple[str, ...]] = []
    for name, work in (("plain", plain), ("ours", ours)):
        for precision in precisions:
            forward, backward = timed(work, precision, repeats)

            def whole(work: Callable[[], Tensor] = work, precision: Precision = precision) -> None:
                with autocast(precision, "cpu"):
                    loss = work()
                loss.backward()

            memory = peak_extra_bytes(whole)
            total = forward + backward
            cells = (f"{forward:.2f}", f"{backward:.2f}", f"{total:.2f}", f"{base / total:.2f}", f"{memory / 1e6:.0f}")
            found.append((name, precision, *cells))
    header = ("step", "precision", "forward s", "backward s", "together", "plain float32 / it", "peak extra MB")
    print("\n" + table(found, header))
