"""What was measured: a file of cells per experiment, and estimates over seeds.

A cell is the smallest piece that is measured at once. A file has one line of JSON per cell.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from arcmask.evaluation import paired_difference
from arcmask.files import write_whole

HERE = Path(__file__).parent


@cache
def read_cells(experiment: str) -> dict[str, Any]:
    """Return the cells of an experiment by name; none before it was run."""
    path = HERE / f"{experiment}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write_cells(experiment: str, cells: dict[str, Any]) -> None:
    """Write the cells of an experiment, in numbers with six digits behind the point."""
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(_rounded(cells[name]), separators=(',', ':'))}" for name in cells
    )
    write_whole(HERE / f"{experiment}.json", f"{{\n{lines}\n}}\n".encode())
    read_cells.cache_clear()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return round(value, 6) if isinstance(value, float) else value


@dataclass(frozen=True)
class Estimate:
    """A value with half its 95 % interval and its p-value."""

    value: float
    half_width: float
    p_value: float

    def text(self, digits: int) -> str:
        return f"{self.value:+.{digits}f} ± {self.half_width:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def jackknife(values: Callable[[Sequence[int]], float], seeds: Sequence[int]) -> Estimate:
    """Return a value of all seeds with its jackknife interval; for an average over seeds it is the usual t-interval."""
    n, whole = len(seeds), values(seeds)
    pseudo = [n * whole - (n - 1) * values([seed for seed in seeds if seed != left_out]) for left_out in seeds]
    # Centred on the value itself: with few seeds the jackknife's own correction of bias is noise.
    summary = paired_difference(pseudo, [float(np.mean(pseudo)) - whole] * n)
    return Estimate(whole, summary.half_width or math.nan, 1.0 if summary.p_value is None else summary.p_value)


def beyond_line(point: tuple[float, float], plain: Sequence[tuple[float, float]]) -> float:
    """Return how far the quality of samples is above the straight line through plain sampling at some temperatures.

    A point is (diversity, quality). `arcmask.diagnostics.generation_curve` compares samples in the same way.
    """
    diversity, quality = np.array(plain).T
    slope, level = np.polyfit(diversity, quality, 1)
    return float(point[1] - (level + slope * point[0]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's step-down correction."""
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(np.arange(len(order), 0, -1) * np.array(p_values)[order]).clip(max=1)
    return [float(adjusted[rank]) for rank in np.argsort(order)]


def marked(estimates: Sequence[Estimate], digits: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return estimates as text, with p < 0.05 after Holm's correction in bold, and the lines that say so."""
    is_kept = [p < 0.05 for p in holm([one.p_value for one in estimates])]
    texts = [one.text(number) for one, number in zip(estimates, digits, strict=True)]
    note = f"Bold marks p < 0.05 after Holm's correction for all {len(texts)} differences: {sum(is_kept)} of them."
    return [f"**{text}**" if kept else text for text, kept in zip(texts, is_kept, strict=True)], ["", note]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of markdown."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
