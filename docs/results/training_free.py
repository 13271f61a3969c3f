"""Sample the shipped base with feedback and no training, and draw what the feedback is worth.

    arcmask prepare sotu data/sotu-text8-128 --tokenizer text8 --length 128
    python docs/results/training_free.py data/sotu-text8-128   # in training_free.json beside this file
    python docs/results/page.py                                # the table and the figure

Every arm draws the same samples (seed, index) from `sotu-tiny`. A cell has the real words, the words and the entropy of
every sample. If the script is interrupted, run it again; it resumes. All cells take about an hour on two cores.
"""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
from measured import read_cells, table, write_cells

import arcmask
from arcmask.diagnostics import GenerationCurve, Generator, real_words
from arcmask.diagnostics.generation import Counts, Point, compare
from arcmask.evaluation import Reference
from arcmask.feedback import Confidence, SoftMask

SEEDS, SAMPLES, LENGTH, STEPS = (1, 2, 3), 96, 128, 64
WEIGHTS, TEMPERATURES = (0.1, 0.2, 0.3), (1.0, 0.95, 0.9, 0.85, 0.8)
ARMS = [("none", temperature) for temperature in TEMPERATURES]  # operator, and weight or temperature
ARMS += [(operator, weight) for operator in ("linear", "spherical") for weight in WEIGHTS]


def measure(data: str) -> None:
    """Sample every cell that is missing."""
    cells = read_cells("training_free")
    denoiser = arcmask.load("sotu-tiny")
    quality = real_words(Reference(data).words())
    generator = Generator(denoiser=denoiser, quality=quality, samples=SAMPLES, length=LENGTH, steps=STEPS)
    for seed in SEEDS:
        for operator, setting in ARMS:
            name = f"{operator} {setting:g} {seed}"
            if name not in cells:
                is_plain = operator == "none"
                feedback = None if is_plain else SoftMask(operator, 3, 3, Confidence(fixed=setting))
                counts = replace(generator, seed=seed).counts(feedback, setting if is_plain else 1.0)
                cells = cells | {name: [[int(real), int(words), entropy] for real, words, entropy in counts.tolist()]}
                write_cells("training_free", cells)
                print(name, flush=True)


def counts_of(arm: tuple[str, float]) -> list[Counts]:
    """Return the counts of an arm, seed by seed."""
    return [np.array(read_cells("training_free")[f"{arm[0]} {arm[1]:g} {seed}"]) for seed in SEEDS]


@cache
def points() -> dict[tuple[str, float], Point]:
    """Return each arm, compared with plain sampling; all seeds together."""
    counts = {arm: np.concatenate(counts_of(arm)) for arm in ARMS}
    plain = [counts["none", temperature] for temperature in TEMPERATURES]
    return {arm: compare(counts[arm], plain, arm[1], scale=100.0, is_plain=arm[0] == "none") for arm in ARMS}


def curve() -> GenerationCurve:
    """Return what the figure shows."""
    return GenerationCurve(
        quality="real words (%)",
        unit="points",
        better="higher",
        samples=SAMPLES * len(SEEDS),
        length=LENGTH,
        steps=STEPS,
        operators={name: [points()[name, weight] for weight in WEIGHTS] for name in ("linear", "spherical")},
        plain=[points()["none", temperature] for temperature in TEMPERATURES],
    )


def tables() -> dict[str, list[str]]:
    """Return the table by its title, as lines of markdown."""
    rows = []
    for arm, point in points().items():
        label = f"plain, temperature {arm[1]:g}" if arm[0] == "none" else f"`{arm[0]}`, weight {arm[1]:g}"
        pairs = zip(counts_of(arm), counts_of(ARMS[0]), strict=True)
        by_seed = ", ".join(f"{compare(one, [base], 0.0, 100.0).difference:+.1f}" for one, base in pairs)
        change = [f"{point.difference:+.1f} ± {point.half_width:.1f}", by_seed] if arm != ARMS[0] else ["", ""]
        level = "" if point.gain is None else f"{point.gain:+.1f} ± {point.gain_half_width:.1f}"
        rows.append([label, f"{point.quality:.1f}", *change, level, f"{point.entropy:.3f}"])
    columns = ["sampling", "real words, %", "difference", "difference by seed", "at equal entropy", "entropy"]
    return {"training free": table(columns, rows)}


if __name__ == "__main__":
    measure(sys.argv[1])
