"""Collect what the recipe `antibody` has measured, and make its tables.

    arcmask reproduce antibody                      # in runs/antibody
    python docs/results/antibody.py runs/antibody   # collects antibody.json beside this file; the corpus is in data
    python docs/results/page.py                     # the tables and the figure

Differences are paired by seed: both arms fill in the same chains with the same random numbers. At equal spread, each
arm is compared with the straight line through the base at four temperatures. ± is a 95 % confidence interval, from a
jackknife over seeds.
"""

import json
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from factorial import scores_of_chains, studies
from measured import beyond_line, jackknife, marked, read_cells, table, write_cells

from arcmask.evaluation import read_samples

BUDGETS = (8, 16, 32)
ARMS = {
    "base": "as it is",
    "base-temperature-0.9": "as it is, temperature 0.9",
    "base-temperature-0.8": "as it is, temperature 0.8",
    "base-temperature-0.7": "as it is, temperature 0.7",
    "linear-tuned": "fitted, linear",
    "spherical-tuned": "fitted, spherical",
    "none": "trained, no feedback",
    "linear-0.3": "trained, linear, 0.3",
    "spherical-0.3": "trained, spherical, 0.3",
}
BASE = [arm for arm in ARMS if arm.startswith("base")]
PAIRS = (
    ("linear-tuned", "base"),
    ("spherical-tuned", "base"),
    ("spherical-tuned", "linear-tuned"),
    ("none", "base"),
    ("linear-0.3", "none"),
    ("spherical-0.3", "none"),
    ("spherical-0.3", "linear-0.3"),
)


def collect(run: Path) -> dict[str, Any]:
    """Return the bounds and the scores of samples of the seeds that are finished: `ARM SEED` and `ARM SEED BUDGET`."""
    study, cells = studies(Path("data"))["antiberty"], {}
    for seed in json.loads((run / "plan.json").read_text())["seeds"]:
        folders = {arm: run / arm / f"seed-{seed}" for arm in ARMS}
        if not all((folder / f"steps-{BUDGETS[-1]}/scores.json").exists() for folder in folders.values()):
            continue
        for arm, folder in folders.items():
            bounds = json.loads((folder / "likelihood.json").read_text())
            cells[f"{arm} {seed}"] = {way: bound["nats"] for way, bound in bounds.items()}  # plain, two_pass
            for budget in BUDGETS:
                cell = folder / f"steps-{budget}"
                scores = json.loads((cell / "scores.json").read_text())["scores"]
                cells[f"{arm} {seed} {budget}"] = scores_of_chains(
                    study, read_samples(str(cell / "samples.jsonl")).texts
                ) | {"nearest": scores["nearest"]["value"]}
                print(arm, seed, budget, flush=True)
    return cells


def cells() -> dict[str, Any]:
    """Return what was collected."""
    return read_cells("antibody")


def seeds() -> list[int]:
    """Return the seeds that were collected."""
    return sorted({int(name.split()[1]) for name in cells()})


def bound(arm: str, chosen: Sequence[int]) -> float:
    """Return the mean bound of an arm in nats per token: of two passes if it has feedback."""
    here = [cells()[f"{arm} {seed}"] for seed in chosen]
    return float(np.mean([cell.get("two_pass", cell["plain"]) for cell in here]))


def quality(arm: str, budget: int, chosen: Sequence[int]) -> float:
    """Return the NLL per residue of the samples of an arm, all seeds together."""
    pairs = [pair for seed in chosen for pair in cells()[f"{arm} {seed} {budget}"]["quality"]]
    nats, residues = np.sum(pairs, axis=0)
    return float(nats / residues)


def average(arm: str, budget: int, key: str, chosen: Sequence[int]) -> float:
    """Return the mean of a score over the samples of an arm."""
    return float(np.mean([value for seed in chosen for value in cells()[f"{arm} {seed} {budget}"][key]]))


def at_equal_spread(arm: str, budget: int, chosen: Sequence[int]) -> float:
    """Return how far the NLL per residue is above that of the base at the temperature with the same spread."""
    points = {name: (average(name, budget, "spread", chosen), quality(name, budget, chosen)) for name in [arm, *BASE]}
    return beyond_line(points[arm], [points[name] for name in BASE])


def scores_table() -> list[str]:
    """Return quality and diversity of every arm and budget, all seeds together."""
    columns = ["model", "T", "NLL per residue", "entropy", "spread", "distinct", "nearest"]
    rows = []
    for arm, label in ARMS.items():
        for budget in BUDGETS:
            here = [cells()[f"{arm} {seed} {budget}"] for seed in seeds()]
            entropy, spread = (average(arm, budget, key, seeds()) for key in ("entropy", "spread"))
            nearest = np.mean([cell["nearest"] for cell in here])
            distinct = f"{sum(cell['distinct'] for cell in here)} of {sum(len(cell['spread']) for cell in here)}"
            scores = [f"{quality(arm, budget, seeds()):.3f}", f"{entropy:.3f}", f"{spread:.3f}"]
            rows.append([label, str(budget), *scores, distinct, f"{nearest:.1f}"])
    return table(columns, rows)


def differences_table() -> list[str]:
    """Return the paired differences between arms: of the bound, and of quality as measured and at equal spread."""
    columns: dict[str, Callable[[str, str, Sequence[int]], float]] = {
        "bound": lambda one, other, chosen: bound(one, chosen) - bound(other, chosen)
    }
    for budget in BUDGETS:
        columns[f"T = {budget}"] = lambda one, other, chosen, budget=budget: (
            quality(one, budget, chosen) - quality(other, budget, chosen)
        )
        columns[f"T = {budget}, equal spread"] = lambda one, other, chosen, budget=budget: (
            at_equal_spread(one, budget, chosen) - at_equal_spread(other, budget, chosen)
        )
    found = [
        jackknife(lambda chosen, f=column, pair=pair: f(*pair, chosen), seeds())
        for pair in PAIRS
        for column in columns.values()
    ]
    texts, note = marked(found, [3] * len(found))
    rest = iter(texts)
    labels = [" \N{MINUS SIGN} ".join(ARMS[arm] for arm in pair) for pair in PAIRS]
    rows = [[label, *islice(rest, len(columns))] for label in labels]
    return [*table(["difference", *columns], rows), *note]


def tables() -> dict[str, list[str]]:
    """Return both tables by title, as lines of markdown."""
    if not cells():
        return {}
    return {"antibody, samples": scores_table(), "antibody, differences": differences_table()}


if __name__ == "__main__":
    write_cells("antibody", collect(Path(sys.argv[1])))
