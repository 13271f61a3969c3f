"""A denoiser over 3 tokens and 3 positions, and the exact distribution (law) of samples from it.

The law is computed by summing over the whole Markov chain. This code shares nothing with the package's sampler; the
operator is that of `literal.py`.
"""

import itertools
from collections import defaultdict
from functools import cache

import literal
import torch
from torch import Tensor

V, MASK, LENGTH, WIDTH = 4, 3, 3, 5  # three tokens and the mask
STATES = list(itertools.product(range(3), repeat=LENGTH))


class TableDenoiser:
    """A denoiser in ten lines: the logits at a position are a fixed random function of all input embeddings."""

    mask_id, max_length = MASK, LENGTH

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.table = torch.randn(V, WIDTH, generator=draw, dtype=torch.float64)
        self.mix = torch.randn(LENGTH, LENGTH, WIDTH, WIDTH, generator=draw, dtype=torch.float64)
        self.head = torch.randn(V, WIDTH, generator=draw, dtype=torch.float64)

    def hidden(self, embeddings: Tensor) -> Tensor:
        return torch.tanh(torch.einsum("bld,mlde->bme", embeddings, self.mix))

    def logits(self, rows: Tensor) -> Tensor:
        return 2 * rows @ self.head.T


DENOISER = TableDenoiser()


@cache
def predict(tokens: tuple[int, ...], fed: tuple[tuple[float, ...] | None, ...] = (None,) * LENGTH) -> tuple:
    """Return 3 probabilities for every position; `fed` holds the previous prediction of each masked position."""
    embeddings = DENOISER.table[list(tokens)].clone()
    for position, probs in enumerate(fed):
        if probs is not None and tokens[position] == MASK:
            embeddings[position] = soft_mask(probs)
    hidden = torch.tanh(torch.einsum("ld,mlde->me", embeddings, DENOISER.mix))
    logits = 2 * hidden @ DENOISER.head.T
    return tuple(tuple(row) for row in logits[:, :MASK].softmax(-1).tolist())


TOP_K, STEPS, SCALE, CENTRE, STEEPNESS = 2, 2, 0.9, -0.9, 5.0


def soft_mask(probs: tuple[float, ...]) -> Tensor:
    p = torch.tensor(probs, dtype=torch.float64)
    top = p.topk(TOP_K)
    weight = SCALE * torch.sigmoid(STEEPNESS * (-torch.special.entr(p).sum() - CENTRE))
    return literal.spherical_soft_mask(
        DENOISER.table[MASK], DENOISER.table[top.indices], top.values / top.values.sum(), weight, STEPS
    )


def nucleus(probs: tuple[float, ...], p: float) -> tuple[float, ...]:
    """Return the smallest set of most probable tokens that reaches p, renormalised."""
    order = sorted(range(3), key=lambda token: -probs[token])
    kept, total = [], 0.0
    for token in order:
        kept.append(token)
        total += probs[token]
        if total >= p:
            break
    return tuple(probs[token] / total if token in kept else 0.0 for token in range(3))


def loop_alpha(time: float, held: float, start: float, stop: float) -> float:
    """Return the share of revealed positions in ReMDM-loop."""
    if time > start:
        return (1 - time) * held / (1 - start)
    return held if time > stop else 1 - time * (1 - held) / stop


def ancestral_law(
    steps: int,
    *,
    feedback: bool,
    top_p: float = 1.0,
    alpha=lambda time: 1 - time,
    rate=lambda _: 0.0,
    late: int = 0,
    wrong_rate: bool = False,
    reuse: bool = False,
) -> list[float]:
    """Return the exact law of the output; `rate` is the probability that a revealed position is masked again.

    `late` feeds back the prediction of that many steps earlier than it should. With `reuse`, the prediction stays the
    same until a token changes.
    """
    times = torch.linspace(1, 1e-5, steps + 1, dtype=torch.float64).tolist()
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def walk(step: int, tokens: tuple[int, ...], memory: tuple, chance: float, last: tuple | None = None) -> None:
        if step == steps:
            final = predict(tokens)
            filled = (
                max(range(3), key=row.__getitem__) if t == MASK else t for t, row in zip(tokens, final, strict=True)
            )
            law[tuple(filled)] += chance
            return
        time, after = times[step], times[step + 1]
        fed: tuple = (None,) * LENGTH
        if feedback and 0.2 <= time <= 0.8 and len(memory) > late:
            fed = memory[-1 - late]
        rows = predict(tokens, fed) if last is None else last
        choices = []
        for position, token in enumerate(tokens):
            sigma = min(rate(time), (1 - alpha(after)) / alpha(time)) if alpha(time) > 0 else 0.0
            if token == MASK:
                reveal = (alpha(after) - (1 - sigma) * alpha(time)) / (1 - alpha(time))
                if wrong_rate:
                    reveal = (time - after) / (time + 1 / steps)
                kept = nucleus(rows[position], top_p)
                choices.append([(MASK, 1 - reveal), *((v, reveal * kept[v]) for v in range(3) if kept[v] > 0)])
            else:
                choices.append([(token, 1 - sigma), (MASK, sigma)] if sigma > 0 else [(token, 1.0)])
        # What was masked and stays masked is fed back; a position that is masked again starts with nothing.
        for outcome in itertools.product(*choices):
            now = tuple(token for token, _ in outcome)
            share = chance
            for _, p in outcome:
                share *= p
            if share > 0:
                known = tuple(
                    row if before == MASK and token == MASK else None
                    for row, before, token in zip(rows, tokens, now, strict=True)
                )
                walk(step + 1, now, (*memory, known), share, rows if reuse and now == tokens else None)

    walk(0, (MASK,) * LENGTH, (), 1.0)
    return [law[state] for state in STATES]


def first_hitting_law(groups: list[int]) -> list[float]:
    """Return the law without feedback for positions in random order, predicted together in groups of these sizes."""
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def walk(group: int, tokens: tuple[int, ...], chance: float) -> None:
        if group == len(groups):
            law[tokens] += chance
            return
        masked = [i for i, token in enumerate(tokens) if token == MASK]
        sets = list(itertools.combinations(masked, groups[group]))
        rows = predict(tokens)
        for chosen in sets:
            for values in itertools.product(range(3), repeat=len(chosen)):
                now, share = list(tokens), chance / len(sets)
                for position, value in zip(chosen, values, strict=True):
                    now[position] = value
                    share *= rows[position][value]
                walk(group + 1, tuple(now), share)

    walk(0, (MASK,) * LENGTH, 1.0)
    return [law[state] for state in STATES]


def confidence_law(groups: list[int]) -> list[float]:
    """Return the law without feedback if each group keeps the most probable draws of all masked positions."""
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def walk(group: int, tokens: tuple[int, ...], chance: float) -> None:
        if group == len(groups):
            law[tokens] += chance
            return
        masked = [i for i, token in enumerate(tokens) if token == MASK]
        rows = predict(tokens)
        for values in itertools.product(range(3), repeat=len(masked)):
            shares = {i: rows[i][v] for i, v in zip(masked, values, strict=True)}
            share = chance
            for p in shares.values():
                share *= p
            best = sorted(masked, key=lambda i: (-shares[i], i))[: groups[group]]
            now = [dict(zip(masked, values, strict=True))[i] if i in best else t for i, t in enumerate(tokens)]
            walk(group + 1, tuple(now), share)

    walk(0, (MASK,) * LENGTH, 1.0)
    return [law[state] for state in STATES]
