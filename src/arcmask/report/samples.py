"""Samples side by side: the texts of all arms for the same seed and index."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arcmask.report.folder import Experiment

LONGEST = 2400  # characters of a text


@dataclass(frozen=True)
class Panel:
    """The samples of one budget and seed: for each index one text per arm, None if the arm has none."""

    budget: int
    seed: int
    rows: list[tuple[int, list[str | None]]]


def panels(experiment: Experiment) -> list[Panel]:
    """Return a panel for every budget and seed that has samples."""
    shown = []
    for budget in experiment.budgets:
        for seed in experiment.seeds:
            texts = [_texts(experiment, arm, seed, budget) for arm in experiment.arms]
            indices = sorted({index for by_index in texts for index in by_index})
            if indices:
                shown.append(Panel(budget, seed, [(i, [by_index.get(i) for by_index in texts]) for i in indices]))
    return shown


def _texts(experiment: Experiment, arm: str, seed: int, budget: int) -> dict[int, str]:
    records = experiment.samples.get((arm, seed, budget), [])
    return {int(record["index"]): sample_text(record) for record in records}


def sample_text(record: Mapping[str, Any]) -> str:
    """Return the text of a sample, or its tokens if it has none; a long one is cut."""
    text = record.get("text")
    if text is None:
        text = " ".join(str(token) for token in record.get("tokens", []))
    return text if len(text) <= LONGEST else text[:LONGEST] + " \u2026"
