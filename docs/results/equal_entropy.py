"""Print the differences in generative perplexity between arms, as measured and at equal entropy.

    python docs/results/equal_entropy.py docs/results/scores.json

Samples with lower entropy get a lower perplexity. The slope of a sample's nats per token over its entropy is estimated
within cells (arm, seed, budget), one slope per budget. Each difference is then corrected along that slope.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from arcmask.evaluation import summarize


def slope(cells: list[Any]) -> float:
    """Return the nats per token that come with one nat of entropy, within cells, weighted by tokens."""
    covariance = variance = 0.0
    for cell in cells:
        nats, tokens, entropy = (np.array(cell["texts"][name]) for name in ("nats", "tokens", "entropy"))
        x = entropy - np.average(entropy, weights=tokens)
        y = nats / tokens - nats.sum() / tokens.sum()
        covariance += (tokens * x * y).sum()
        variance += (tokens * x * x).sum()
    return covariance / variance


def percent(differences: list[float]) -> str:
    """Format paired differences of log perplexity as a change in percent with its 95 % confidence interval."""
    summary = summarize(differences)
    width = summary.half_width or math.nan
    change, low, high = (100 * math.expm1(summary.mean + shift) for shift in (0, -width, width))
    return f"{change:+.1f} % ({low:+.1f} to {high:+.1f})"


def main(path: str) -> None:
    """Print a row for each budget and pair of arms."""
    run = json.loads(Path(path).read_text())
    print("| T | difference | perplexity | entropy, nats | perplexity at equal entropy |\n|---|---|---|---|---|")
    for budget in map(str, run["budgets"]):
        cells = {(arm, seed): run["cells"][arm][seed][budget] for arm in run["arms"] for seed in map(str, run["seeds"])}
        steepness = slope(list(cells.values()))
        for first, second in run["pairs"]:
            pairs = [(cells[first, str(seed)], cells[second, str(seed)]) for seed in run["seeds"]]
            ratios = [math.log(a["generative_perplexity"] / b["generative_perplexity"]) for a, b in pairs]
            entropies = [a["entropy"] - b["entropy"] for a, b in pairs]
            level = [ratio - steepness * entropy for ratio, entropy in zip(ratios, entropies, strict=True)]
            change = summarize(entropies)
            entropy = f"{change.mean:+.4f} ± {change.half_width:.4f}"
            print(f"| {budget} | {first} minus {second} | {percent(ratios)} | {entropy} | {percent(level)} |")
        print(f"T = {budget}: {steepness:.2f} nats per token for one nat of entropy", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
