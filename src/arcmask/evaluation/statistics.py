"""From values to statements: mean, spread and 95 % interval over seeds, differences between arms, the bootstrap.

Knows numbers alone, and needs no torch. Where there are too few values for an interval there is None, never a zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcmask.errors import ArcmaskError

Values = Sequence[float] | NDArray[np.float64]
CONFIDENCE = 0.95
_DRAWN_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class Summary:
    """Values over seeds: their mean, sample standard deviation, and the half width of the 95 % interval of the mean."""

    mean: float
    std: float | None
    half_width: float | None
    n: int


@dataclass(frozen=True)
class PairedDifference:
    """first - second, seed by seed: as a Summary, and the two-sided p-value of the paired t-test."""

    mean: float
    std: float | None
    half_width: float | None
    p_value: float | None
    n: int


def summarize(values: Values) -> Summary:
    """Mean, sample standard deviation, and 95 % half width by Student's t with n - 1 degrees of freedom."""
    found = _checked(values)
    n, mean = len(found), float(found.mean())
    if n < 2:
        return Summary(mean=mean, std=None, half_width=None, n=n)
    std = float(found.std(ddof=1))
    critical = float(_scipy_stats().t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Summary(mean=mean, std=std, half_width=critical * std / math.sqrt(n), n=n)


def paired_difference(first: Values, second: Values) -> PairedDifference:
    """The difference of two arms that share their seeds: value i of both comes from the same seed."""
    if len(first) != len(second):
        raise ArcmaskError(f"paired values must be as many on both sides, but there are {len(first)} and {len(second)}")
    summary = summarize(_checked(first) - _checked(second))
    p_value = None
    if summary.std is not None:
        if summary.std == 0:  # the limit of the test, which itself divides by zero
            p_value = 1.0 if summary.mean == 0 else 0.0
        else:
            statistic = summary.mean / (summary.std / math.sqrt(summary.n))
            p_value = float(2 * _scipy_stats().t.sf(abs(statistic), summary.n - 1))
    return PairedDifference(
        mean=summary.mean, std=summary.std, half_width=summary.half_width, p_value=p_value, n=summary.n
    )


def relative_change(value: float, baseline: float) -> float:
    """How far a value lies above its baseline, as a share of the baseline: 0.36 is 36 % more, -0.17 is 17 % less."""
    if baseline == 0:
        raise ArcmaskError("a change relative to a baseline of 0 does not exist")
    return value / baseline - 1


def bootstrap_interval(values: Values, seed: int = 0, repeats: int = 2000) -> tuple[float, float] | None:
    """The 95 % percentile interval of the mean over samples; None for fewer than two."""
    return bootstrap_ratio(values, np.ones(len(values)), seed=seed, repeats=repeats)


def bootstrap_ratio(
    numerators: Values, denominators: Values, seed: int = 0, repeats: int = 2000
) -> tuple[float, float] | None:
    """The same for sum(numerators) / sum(denominators), both drawn by samples: nats and tokens, for example.

    A draw whose denominators sum to zero says nothing and is left out; None if there are fewer than two samples, or
    none of the draws says anything.
    """
    if len(numerators) != len(denominators):
        raise ArcmaskError(f"there are {len(numerators)} numerators, but {len(denominators)} denominators")
    if repeats < 1:
        raise ArcmaskError(f"the bootstrap repeats {repeats} times, but must at least once")
    n = len(numerators)
    if n < 2:
        return None
    above, below = _checked(numerators), _checked(denominators)
    generator = np.random.default_rng(seed)
    found: list[NDArray[np.float64]] = []
    height = max(1, _DRAWN_AT_A_TIME // n)
    for start in range(0, repeats, height):
        drawn = generator.integers(n, size=(min(height, repeats - start), n))
        sums = below[drawn].sum(1)
        found.append(above[drawn].sum(1)[sums != 0] / sums[sums != 0])
    ratios = np.concatenate(found)
    if not ratios.size:
        return None
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _checked(values: Values) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size:
        raise ArcmaskError(f"statistics need a row of at least one value, and got the shape {found.shape}")
    if not np.isfinite(found).all():
        raise ArcmaskError(f"statistics need finite values, and one is {found[~np.isfinite(found)][0]}")
    return found


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise ArcmaskError("intervals need scipy; pip install 'arcmask[eval]' brings it") from error
    return stats
