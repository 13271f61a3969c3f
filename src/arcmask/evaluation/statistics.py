"""Statistics: mean, standard deviation and 95 % confidence interval over seeds, paired differences, the bootstrap.

The module needs no torch. With too few values for an interval the result is None, never zero.
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
_DRAWS_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class Summary:
    """The mean of values over seeds, their sample standard deviation, and half the width of the 95 % interval."""

    mean: float
    std: float | None
    half_width: float | None
    n: int


@dataclass(frozen=True)
class PairedDifference(Summary):
    """A summary of first - second, seed by seed, with the two-sided p-value of the paired t-test."""

    p_value: float | None


def summarize(values: Values) -> Summary:
    """Summarise values over seeds (n,). The 95 % interval is Student's t with n - 1 degrees of freedom.

    >>> from arcmask.evaluation import summarize
    >>> summary = summarize([86.0, 88.0, 87.0])
    >>> summary.mean, summary.std, round(summary.half_width, 3)
    (87.0, 1.0, 2.484)
    """
    numbers = _checked(values)
    n, mean = len(numbers), float(numbers.mean())
    if n < 2:
        return Summary(mean=mean, std=None, half_width=None, n=n)
    std = float(numbers.std(ddof=1))
    return Summary(mean=mean, std=std, half_width=half_width(std / math.sqrt(n), n), n=n)


def half_width(standard_error: float, n: int) -> float:
    """Return half the width of the 95 % interval of a mean of n values: Student's t with n - 1 degrees of freedom."""
    return float(_scipy_stats().t.ppf((1 + CONFIDENCE) / 2, n - 1)) * standard_error


def paired_difference(first: Values, second: Values) -> PairedDifference:
    """Compare two arms that share their seeds: value i of both, (n,) and (n,), comes from the same seed.

    >>> from arcmask.evaluation import paired_difference
    >>> paired_difference([3.0, 5.0], [1.0, 2.0]).mean
    2.5
    """
    if len(first) != len(second):
        raise ArcmaskError(f"paired values must be equally many, but there are {len(first)} and {len(second)}")
    summary = summarize(_checked(first) - _checked(second))
    p_value = None
    if summary.std is not None:
        if summary.std == 0:  # the limit of the test, which itself divides by zero
            p_value = 1.0 if summary.mean == 0 else 0.0
        else:
            statistic = summary.mean / (summary.std / math.sqrt(summary.n))
            p_value = float(2 * _scipy_stats().t.sf(abs(statistic), summary.n - 1))
    return PairedDifference(**vars(summary), p_value=p_value)


def relative_change(value: float, baseline: float) -> float:
    """Return how far a value lies above its baseline, as a share of the baseline.

    >>> from arcmask.evaluation import relative_change
    >>> relative_change(5.0, 4.0)
    0.25
    """
    if baseline == 0:
        raise ArcmaskError("a change relative to a baseline of 0 does not exist")
    return value / baseline - 1


@dataclass(frozen=True)
class PairedChange:
    """How far the mean of first lies above that of second, as a share of second, and the 95 % interval of the share."""

    value: float
    interval: tuple[float, float] | None
    n: int


def paired_change(first: Values, second: Values) -> PairedChange:
    """Compare the means of two arms that share their seeds, (n,) and (n,), as a ratio less one.

    The interval is Fieller's: the shares r at which a paired t-test does not reject first = (1 + r) * second. It
    excludes 0 exactly if that of `paired_difference` does. It is None for fewer than two seeds, or if second may be 0.

    >>> from arcmask.evaluation import paired_change
    >>> paired_change([6.0, 4.0], [2.0, 2.0]).value
    1.5
    """
    difference = paired_difference(first, second)
    x, y = _checked(first), _checked(second)
    n, value = difference.n, relative_change(float(x.mean()), float(y.mean()))
    if n < 2:
        return PairedChange(value, None, n)
    # mean(x - r * y)^2 <= margin * var(x - r * y) is a quadratic inequality in r.
    margin = half_width(1.0, n) ** 2 / n
    (xx, xy), (_, yy) = np.cov(x, y)
    a, b, c = y.mean() ** 2 - margin * yy, x.mean() * y.mean() - margin * xy, x.mean() ** 2 - margin * xx
    if a <= 0:
        return PairedChange(value, None, n)
    root = math.sqrt(max(0.0, b * b - a * c))
    return PairedChange(value, (float((b - root) / a) - 1, float((b + root) / a) - 1), n)


def bootstrap_interval(values: Values, seed: int = 0, repeats: int = 2000) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of the mean of samples (n,); None for fewer than two.

    >>> from arcmask.evaluation import bootstrap_interval
    >>> bootstrap_interval([2.0, 2.0, 2.0])
    (2.0, 2.0)
    """
    return bootstrap_ratio(values, np.ones(len(values)), seed=seed, repeats=repeats)


def bootstrap_ratio(
    numerators: Values, denominators: Values, seed: int = 0, repeats: int = 2000
) -> tuple[float, float] | None:
    """Return the same interval for sum(numerators) / sum(denominators), (n,) and (n,): nats and tokens, for example.

    Draws whose denominators sum to zero are left out. The result is None if all are, or with fewer than two samples.
    """
    if len(numerators) != len(denominators):
        raise ArcmaskError(f"there are {len(numerators)} numerators, but {len(denominators)} denominators")
    if repeats < 1:
        raise ArcmaskError(f"repeats is {repeats}, but must be 1 or more")
    n = len(numerators)
    if n < 2:
        return None
    above, below = _checked(numerators), _checked(denominators)
    generator = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = []
    height = max(1, _DRAWS_AT_A_TIME // n)
    for start in range(0, repeats, height):
        drawn = generator.integers(n, size=(min(height, repeats - start), n))
        sums = below[drawn].sum(1)
        parts.append(above[drawn].sum(1)[sums != 0] / sums[sums != 0])
    ratios = np.concatenate(parts)
    if not ratios.size:
        return None
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _checked(values: Values) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not numbers.size:
        raise ArcmaskError(f"statistics need a row of at least one value, but the shape is {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ArcmaskError(f"statistics need finite values, but one is {numbers[~np.isfinite(numbers)][0]}")
    return numbers


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise ArcmaskError("intervals need scipy; pip install 'arcmask[eval]' brings it") from error
    return stats
