"""Collect what the recipe `antibody` has measured, sample its trained models at lower temperatures, and make tables.

    arcmask reproduce antibody                      # in runs/antibody
    python docs/results/antibody.py runs/antibody   # into antibody.json beside this file; the corpus is in data
    python docs/results/page.py                     # the tables and the figures

Cells are `ARM SEED` (bounds), `ARM SEED STEPS` (samples of the recipe) and `ARM SEED 16 TEMPERATURE` (trained models).
If the script is interrupted, run it again; it resumes.

Differences are paired by seed: both arms fill in the same chains with the same random numbers. Quality at equal spread
is the distance from the straight line through the base at four temperatures, or for trained models the height of their
own lines at one spread. ± is a 95 % confidence interval, from a jackknife over seeds.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from factorial import TEMPERATURES, scores_of_chains, studies
from measured import Estimate, beyond_line, jackknife, marked, read_cells, table, write_cells

import arcmask
from arcmask.evaluation import Neighbours, read_samples
from arcmask.evaluation.scores import nearest_scores

BUDGETS = (8, 16, 32)
BUDGET = 16  # of the samples at lower temperatures
SPREAD = 0.38  # at which trained models are compared: near the middle of what the samples of all three have
SCORES = ["NLL per residue", "entropy", "spread", "distinct", "nearest"]
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
TRAINED = {"none": "trained, no feedback", "linear-0.3": "trained, linear", "spherical-0.3": "trained, spherical"}
PAIRS = (
    ("linear-tuned", "base"),
    ("spherical-tuned", "base"),
    ("spherical-tuned", "linear-tuned"),
    ("none", "base"),
    ("linear-0.3", "base"),
    ("spherical-0.3", "base"),
    ("linear-0.3", "none"),
    ("spherical-0.3", "none"),
    ("spherical-0.3", "linear-0.3"),
)


def measure(run: Path) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the cells of the seeds that are finished, each with its name and how to measure it."""
    study = studies(Path("data"))["antiberty"]

    @cache
    def neighbours() -> Neighbours:
        return Neighbours.open(str(study.data))

    def bounds(folder: Path) -> dict[str, Any]:
        ways = json.loads((folder / "likelihood.json").read_text())
        return {way: bound["nats"] for way, bound in ways.items()}  # plain, two_pass

    def scored(texts: list[str], nearest: float) -> dict[str, Any]:
        return scores_of_chains(study, texts) | {"nearest": nearest}  # the mean number of edits

    def samples(folder: Path) -> dict[str, Any]:
        scores = json.loads((folder / "scores.json").read_text())["scores"]
        return scored(read_samples(str(folder / "samples.jsonl")).texts, scores["nearest"]["value"])

    def colder(folder: Path, seed: int, temperature: float) -> dict[str, Any]:
        lines = (run / "prompts" / f"seed-{seed}.jsonl").read_text().splitlines()
        drawn = arcmask.sample(
            arcmask.load(folder / "train"),
            len(lines),
            steps=BUDGET,
            prompt=[json.loads(line)["text"] for line in lines],
            temperature=temperature,
            seed=seed,
            batch_size=12,
        )
        return scored(drawn.texts, nearest_scores(drawn.texts, neighbours(), seed)["nearest"]["value"])

    for seed, arm in product(json.loads((run / "plan.json").read_text())["seeds"], ARMS):
        folder = run / arm / f"seed-{seed}"
        if not (folder / f"steps-{BUDGETS[-1]}/scores.json").exists():
            continue
        yield f"{arm} {seed}", lambda f=folder: bounds(f)
        for budget in BUDGETS:
            yield f"{arm} {seed} {budget}", lambda f=folder / f"steps-{budget}": samples(f)
        for temperature in TEMPERATURES[1:] if arm in TRAINED else ():
            yield f"{arm} {seed} {BUDGET} {temperature}", lambda f=folder, n=seed, t=temperature: colder(f, n, t)


def collect(run: Path) -> None:
    """Measure the cells that are missing."""
    for name, compute in measure(run):
        if name not in read_cells("antibody"):
            write_cells("antibody", read_cells("antibody") | {name: compute()})
            print(name, flush=True)


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


def quality(name: str, chosen: Sequence[int]) -> float:
    """Return the NLL per residue of samples, all seeds together; `name` is ARM SEED STEPS with {} for the seed."""
    pairs = [pair for seed in chosen for pair in cells()[name.format(seed)]["quality"]]
    nats, residues = np.sum(pairs, axis=0)
    return float(nats / residues)


def average(name: str, key: str, chosen: Sequence[int]) -> float:
    """Return the mean of a score over samples, all seeds together."""
    return float(np.mean([np.mean(cells()[name.format(seed)][key]) for seed in chosen]))


def point(name: str, chosen: Sequence[int]) -> tuple[float, float]:
    """Return the spread and the NLL per residue of samples, all seeds together."""
    return average(name, "spread", chosen), quality(name, chosen)


def line(arm: str, budget: int = BUDGET) -> list[str]:
    """Return the names of a model's samples at four temperatures."""
    if arm in TRAINED:
        return [f"{arm} {{}} {budget}", *(f"{arm} {{}} {budget} {one}" for one in TEMPERATURES[1:])]
    return [f"{base} {{}} {budget}" for base in BASE]


def at_spread(arm: str, chosen: Sequence[int]) -> float:
    """Return the NLL per residue of a model at SPREAD, on the straight line through its samples."""
    return -beyond_line((SPREAD, 0.0), [point(name, chosen) for name in line(arm)])


def beyond_base(arm: str, budget: int, chosen: Sequence[int]) -> float:
    """Return how far the NLL per residue is above the line through the samples of the base; 0 for the base."""
    if arm == "base":
        return 0.0
    return beyond_line(point(f"{arm} {{}} {budget}", chosen), [point(name, chosen) for name in line("base", budget)])


def scores_of(name: str) -> list[str]:
    """Return quality and diversity of samples, as a row of a table."""
    here = [cells()[name.format(seed)] for seed in seeds()]
    distinct = f"{sum(cell['distinct'] for cell in here)} of {sum(len(cell['spread']) for cell in here)}"
    means = [quality(name, seeds()), *(average(name, key, seeds()) for key in ("entropy", "spread"))]
    return [*(f"{value:.3f}" for value in means), distinct, f"{average(name, 'nearest', seeds()):.1f}"]


def samples_table() -> list[str]:
    """Return quality and diversity of every arm and budget."""
    rows = [[ARMS[arm], str(budget), *scores_of(f"{arm} {{}} {budget}")] for arm, budget in product(ARMS, BUDGETS)]
    return table(["model", "T", *SCORES], rows)


def colder_table() -> list[str]:
    """Return quality and diversity of the trained models at four temperatures."""
    rows = [
        [label, f"{temperature:g}", *scores_of(name)]
        for arm, label in TRAINED.items()
        for temperature, name in zip(TEMPERATURES, line(arm), strict=True)
    ]
    return table(["model", "temperature", *SCORES], rows)


def differences_table() -> list[str]:
    """Return the paired differences between arms: of the bound, of quality and spread, and of quality at equal spread.

    Feedback that was fitted is compared at equal spread with the line through the model as it is, trained models by the
    lines through their own samples, at one number of steps.
    """
    found: dict[tuple[tuple[str, str], int, str], Estimate] = {}

    def add(pair: tuple[str, str], budget: int, column: str, value: Callable[[str, Sequence[int]], float]) -> None:
        found[pair, budget, column] = jackknife(lambda chosen: value(pair[0], chosen) - value(pair[1], chosen), seeds())

    for pair in PAIRS:
        is_trained = not set(pair).isdisjoint(TRAINED)
        add(pair, BUDGETS[0], "bound", bound)
        for budget in BUDGETS:
            add(pair, budget, "NLL per residue", lambda arm, chosen, t=budget: quality(f"{arm} {{}} {t}", chosen))
            add(pair, budget, "spread", lambda arm, chosen, t=budget: average(f"{arm} {{}} {t}", "spread", chosen))
            if not is_trained:
                add(pair, budget, "NLL at equal spread", lambda arm, chosen, t=budget: beyond_base(arm, t, chosen))
            elif budget == BUDGET:
                add(pair, budget, "NLL at equal spread", at_spread)
    marks, note = marked(list(found.values()), [3] * len(found))
    texts, columns = dict(zip(found, marks, strict=True)), ["bound", "NLL per residue", "spread", "NLL at equal spread"]
    rows = [
        [
            " \N{MINUS SIGN} ".join(ARMS[arm] for arm in pair),
            str(budget),
            *(texts.get((pair, budget, column), "") for column in columns),
        ]
        for pair, budget in product(PAIRS, BUDGETS)
    ]
    return [*table(["difference", "T", *columns], rows), *note]


def tables() -> dict[str, list[str]]:
    """Return every table by title, as lines of markdown."""
    return {
        "antibody, samples": samples_table(),
        "antibody, temperatures": colder_table(),
        "antibody, differences": differences_table(),
    }


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
