"""Sample the shipped base with feedback and no training, and print and draw what the feedback is worth.

arcmask prepare sotu data/sotu-text8-128 --tokenizer text8 --length 128
python docs/results/training_free.py data/sotu-text8-128

Every arm draws the same samples (seed, index) from `sotu-tiny`. The counts of each finished cell are kept in
training_free.json beside this file: real words, words and entropy of every sample. If the script is interrupted, run it
again; it resumes. Thirty cells take about an hour on two cores.
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

import arcmask
from arcmask import figures
from arcmask.diagnostics import GenerationCurve, Generator, real_words
from arcmask.diagnostics.drawing import draw
from arcmask.diagnostics.generation import Point, compare
from arcmask.evaluation import Reference
from arcmask.feedback import Confidence, SoftMask
from arcmask.files import write_whole

DATA = Path(__file__).with_suffix(".json")
SEEDS, SAMPLES, LENGTH, STEPS = (1, 2, 3), 96, 128, 64
WEIGHTS, TEMPERATURES = (0.1, 0.2, 0.3), (1.0, 0.95, 0.9, 0.85)
ARMS = [("none", temperature) for temperature in TEMPERATURES]  # operator, and weight or temperature
ARMS += [(operator, weight) for operator in ("linear", "spherical") for weight in WEIGHTS]


def sample_cells(data: str) -> dict[str, list[list[float]]]:
    """Sample every cell that is missing; return by cell the real words, words and entropy of each sample."""
    cells = json.loads(DATA.read_text()) if DATA.exists() else {}
    denoiser = arcmask.load("sotu-tiny")
    quality = real_words(Reference(data).words())
    generator = Generator(denoiser=denoiser, quality=quality, samples=SAMPLES, length=LENGTH, steps=STEPS)
    for seed in SEEDS:
        for operator, setting in ARMS:
            name = f"{operator} {setting:g} {seed}"
            if name in cells:
                continue
            is_plain = operator == "none"
            feedback = None if is_plain else SoftMask(operator, 3, 3, Confidence(fixed=setting))
            counts = replace(generator, seed=seed).counts(feedback, setting if is_plain else 1.0)
            cells[name] = [[int(real), int(words), round(entropy, 6)] for real, words, entropy in counts.tolist()]
            write_whole(DATA, json.dumps(cells, separators=(",", ":")).encode())
    return cells


def main(data: str) -> None:
    """Print the table, and draw quality against entropy."""
    cells = sample_cells(data)
    by_seed = {arm: [np.array(cells["{} {:g} {}".format(*arm, seed)]) for seed in SEEDS] for arm in ARMS}
    counts = {arm: np.concatenate(parts) for arm, parts in by_seed.items()}
    plain = [counts["none", temperature] for temperature in TEMPERATURES]
    points = {arm: compare(counts[arm], plain, arm[1], scale=100.0, is_plain=arm[0] == "none") for arm in ARMS}
    print("| sampling | real words, % | difference | difference by seed | at equal entropy | entropy |")
    print("|---|---|---|---|---|---|")
    for arm in ARMS:
        print(
            row(
                arm,
                points[arm],
                [
                    compare(one, [base], 0.0, 100.0).difference
                    for one, base in zip(by_seed[arm], by_seed[ARMS[0]], strict=True)
                ],
            )
        )
    curve = GenerationCurve(
        quality="real words (%)",
        unit="points",
        better="higher",
        samples=SAMPLES * len(SEEDS),
        length=LENGTH,
        steps=STEPS,
        operators={name: [points[name, weight] for weight in WEIGHTS] for name in ("linear", "spherical")},
        plain=[points["none", temperature] for temperature in TEMPERATURES],
    )
    canvas = draw(curve)
    figures.save(canvas, DATA.with_name("quality-against-entropy.png"), asdict(curve))


def row(arm: tuple[str, float], point: Point, by_seed: list[float]) -> str:
    """Return a row of the table."""
    label = f"plain, temperature {arm[1]:g}" if arm[0] == "none" else f"{arm[0]}, weight {arm[1]:g}"
    is_first = arm == ARMS[0]
    change = "" if is_first else f"{point.difference:+.1f} ± {point.half_width:.1f}"
    seeds = "" if is_first else ", ".join(f"{difference:+.1f}" for difference in by_seed)
    gain = "" if point.gain is None else f"{point.gain:+.1f} ± {point.gain_half_width:.1f}"
    return f"| {label} | {point.quality:.1f} | {change} | {seeds} | {gain} | {point.entropy:.3f} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
