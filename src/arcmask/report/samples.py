"""Samples side by side: what each arm wrote from the same seed and index."""

from dataclasses import dataclass

from arcmask.report.folder import Experiment

LONGEST = 2400  # letters of a text


@dataclass(frozen=True)
class Panel:
    """One budget and seed: a row for each index, in it a text for each arm (None where there is none)."""

    budget: int
    seed: int
    rows: list[tuple[int, list[str | None]]]


def panels(experiment: Experiment) -> list[Panel]:
    """Every budget and seed of which any arm has samples."""
    found = []
    for budget in experiment.budgets:
        for seed in experiment.seeds:
            texts = [_texts(experiment, arm, seed, budget) for arm in experiment.arms]
            indices = sorted({index for by_index in texts for index in by_index})
            if indices:
                found.append(Panel(budget, seed, [(i, [by_index.get(i) for by_index in texts]) for i in indices]))
    return found


def _texts(experiment: Experiment, arm: str, seed: int, budget: int) -> dict[int, str]:
    found = {}
    for record in experiment.samples.get((arm, seed, budget), []):
        text = record.get("text")
        if text is None:
            text = " ".join(str(token) for token in record.get("tokens", []))
        found[int(record["index"])] = text if len(text) <= LONGEST else text[:LONGEST] + " \u2026"
    return found
