"""Differences in generative perplexity between arms, as they are and at equal entropy.

python docs/results/equal_entropy.py docs/results/quickstart-long

A sampler that repeats itself gets a low perplexity for nothing. How much perplexity comes with entropy is read off the
samples themselves: the slope of a sample's nats a token over its entropy, within cells (arm, seed, budget), one slope
for each budget. A cell's log perplexity is then moved along that slope to the entropy that the other arm has.
"""

import json
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arcmask.evaluation import PerplexitySettings, open_evaluator, paired_difference, read_samples
from arcmask.evaluation.perplexity import text_losses


@dataclass(frozen=True)
class Cell:
    """The samples of an arm, a seed and a budget: nats and tokens by the evaluator, entropy of the characters."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.float64]
    entropy: NDArray[np.float64]

    @property
    def log_perplexity(self) -> float:
        return float(self.nats.sum() / self.tokens.sum())

    @property
    def mean_entropy(self) -> float:
        return float(self.entropy.mean())


def entropy(tokens: list[int]) -> float:
    shares = np.array(list(Counter(tokens).values())) / len(tokens)
    return float(-(shares * np.log(shares)).sum())


def slope(cells: list[Cell]) -> float:
    """Nats a token for a nat of entropy, within cells, samples weighted by their tokens."""
    above = below = 0.0
    for cell in cells:
        x = cell.entropy - np.average(cell.entropy, weights=cell.tokens)
        y = cell.nats / cell.tokens - cell.log_perplexity
        above += float((cell.tokens * x * y).sum())
        below += float((cell.tokens * x * x).sum())
    return above / below


def percent(differences: list[float]) -> str:
    found = paired_difference(differences, [0.0] * len(differences))
    low, high = (
        100 * math.expm1(found.mean + sign * (found.half_width if found.half_width is not None else math.nan))
        for sign in (-1, 1)
    )
    return f"{100 * math.expm1(found.mean):+.1f} % ({low:+.1f} to {high:+.1f})"


def main(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    evaluator = open_evaluator(plan["evaluator"])
    settings = PerplexitySettings(start=plan["start"])

    def read(arm: str, seed: int, budget: int) -> Cell:
        samples = read_samples(str(run / arm / f"seed-{seed}" / f"steps-{budget}" / "samples.jsonl"))
        losses = text_losses(evaluator, samples.texts, settings, cache=run / "cache")
        assert losses is not None
        assert samples.token_lists is not None
        return Cell(
            nats=np.array([loss.nats for loss in losses]),
            tokens=np.array([loss.tokens for loss in losses], dtype=np.float64),
            entropy=np.array([entropy(list(tokens)) for tokens in samples.token_lists]),
        )

    arms = sorted(plan["arms"], key=lambda arm: (arm != plan["baseline"], arm))
    seeds = plan["seeds"]
    print("| T | arms | perplexity | entropy, nats | perplexity at equal entropy |\n|---|---|---|---|---|")
    for budget in plan["budgets"]:
        cells = {(arm, seed): read(arm, seed, budget) for arm in arms for seed in seeds}
        steepness = slope(list(cells.values()))
        for number, second in enumerate(arms):
            for first in arms[number + 1 :]:
                pairs = [(cells[first, seed], cells[second, seed]) for seed in seeds]
                raw = [a.log_perplexity - b.log_perplexity for a, b in pairs]
                moved = [a.mean_entropy - b.mean_entropy for a, b in pairs]
                level = [difference - steepness * move for difference, move in zip(raw, moved, strict=True)]
                found = paired_difference(moved, [0.0] * len(moved))
                entropies = f"{found.mean:+.4f} ± {found.half_width:.4f}"
                print(f"| {budget} | {first} against {second} | {percent(raw)} | {entropies} | {percent(level)} |")
        print(f"slope at T = {budget}: {steepness:.2f} nats a token for a nat of entropy", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
