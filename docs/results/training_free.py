"""Sample the shipped base with feedback and no training, and print what the feedback is worth.

arcmask prepare sotu data/sotu-text8-128 --tokenizer text8 --length 128
python docs/results/training_free.py data/sotu-text8-128

Every arm draws the same samples (seed, index) from `sotu-tiny`. The counts of each finished cell are kept in
training_free.json beside this file. If the script is interrupted, run it again; it resumes. Thirty cells take about an
hour on two cores.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

import arcmask
from arcmask.evaluation import Reference, summarize
from arcmask.evaluation.scores import entropy_score, real_word_score
from arcmask.feedback import Confidence, SoftMask
from arcmask.files import json_bytes, write_whole

DATA = Path(__file__).with_suffix(".json")
SEEDS, SAMPLES, LENGTH, STEPS = (1, 2, 3), 96, 128, 64
# Operator (none for plain sampling), fixed weight, temperature.
ARMS = [("none", 0.0, 1.0)]
ARMS += [(operator, weight, 1.0) for weight in (0.3, 0.2, 0.1) for operator in ("linear", "spherical")]
ARMS += [("none", 0.0, temperature) for temperature in (0.9, 0.95, 0.85)]


def sample_cells(data: str) -> dict[str, list[list[float]]]:
    """Sample every cell that is missing; return by cell the words, real words and entropy of each sample."""
    cells = json.loads(DATA.read_text()) if DATA.exists() else {}
    denoiser, reference = arcmask.load("sotu-tiny"), Reference(data).words()
    for seed in SEEDS:
        for operator, weight, temperature in ARMS:
            name = f"{operator} {weight:g} {temperature:g} {seed}"
            if name in cells:
                continue
            feedback = None if operator == "none" else SoftMask(operator, 3, 3, Confidence(fixed=weight))
            settings = {"feedback": feedback, "temperature": temperature, "seed": seed, "batch_size": 32}
            samples = arcmask.sample(denoiser, SAMPLES, LENGTH, STEPS, **settings)
            cells[name] = [
                [words["words"], round(words["words"] * (words["value"] or 0)), round(entropy, 6)]
                for text, tokens in zip(samples.texts or (), samples.tokens.tolist(), strict=True)
                for words in [real_word_score([text], reference, 0)]
                for entropy in [entropy_score([tokens], "text8", 0)["value"]]
            ]
            write_whole(DATA, json_bytes(cells))
    return cells


def rate(cells: np.ndarray) -> float:
    """Return the share of real words among all words of samples (N, 3)."""
    return float(cells[:, 1].sum() / cells[:, 0].sum())


def influence(cells: np.ndarray) -> np.ndarray:
    """Return how far each sample moves the rate, to first order, so that paired differences have an interval."""
    return (cells[:, 1] - rate(cells) * cells[:, 0]) / cells[:, 0].mean() + rate(cells)


def main(data: str) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # the model was not trained with feedback: that is the point
    cells = sample_cells(data)
    arms = {arm: [np.array(cells["{} {:g} {:g} {}".format(*arm, seed)]) for seed in SEEDS] for arm in ARMS}
    plain = arms[ARMS[0]]
    print("| sampling | real words | difference, points | by seed | entropy of a sample |\n|---|---|---|---|---|")
    for arm in sorted(arms, key=lambda arm: (arm[0] == "none", arm[0], arm[1], -arm[2])):
        ours = arms[arm]
        change = summarize(100 * (influence(np.concatenate(ours)) - influence(np.concatenate(plain))))
        by_seed = ", ".join(f"{100 * (rate(one) - rate(other)):+.1f}" for one, other in zip(ours, plain, strict=True))
        label = f"plain, temperature {arm[2]:g}" if arm[0] == "none" else f"{arm[0]}, weight {arm[1]:g}"
        difference = "| " if arm == ARMS[0] else f"{change.mean:+.1f} ± {change.half_width:.1f} | {by_seed}"
        everything = np.concatenate(ours)
        print(f"| {label} | {rate(everything):.3f} | {difference} | {everything[:, 2].mean():.3f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
