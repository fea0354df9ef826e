"""Variation of a number by chance: across seeds, between two variants on the same seeds, over the turns of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, comb, inf, isinf, isnan, log, sqrt
from typing import Any

import numpy as np

from harness.metrics.metric import quantile

RESAMPLES = 10_000
MIN_FOR_INTERVAL = 3
"""Seeds below which there is no interval: resampling one or two values would only restate them."""

_SEED = 20_240_601  # of the resampling, so that the same values always give the same interval


@dataclass(frozen=True, slots=True)
class Spread:
    """One metric over seeds, in the unit of the metric; None where there is no value."""

    median: float | None
    low: float | None
    """Smallest value."""
    high: float | None
    """Largest value."""
    interval: tuple[float, float] | None
    """Bootstrap 95 % interval of the median; None below 3 values, the range for 3 to 5."""
    n: int
    missing: int


@dataclass(frozen=True, slots=True)
class Paired:
    """A variant against a baseline, seed by seed; None for a seed in which either is missing."""

    differences: dict[int, float | None]
    """variant - baseline"""
    ratios: dict[int, float | None]
    """variant / baseline; None also where the baseline is 0"""
    difference: Spread
    ratio: Spread


def across_seeds(values: Mapping[int, float | None]) -> Spread:
    """Return median, range and bootstrap 95 % interval (percentile method) of one metric, by seed."""
    valid = np.array(sorted(value for value in values.values() if value is not None), dtype=float)
    missing = len(values) - valid.size
    if not valid.size:
        return Spread(None, None, None, None, 0, missing)
    interval = _interval(valid) if valid.size >= MIN_FOR_INTERVAL else None
    return Spread(float(np.median(valid)), float(valid[0]), float(valid[-1]), interval, valid.size, missing)


def paired(baseline: Mapping[int, float | None], variant: Mapping[int, float | None]) -> Paired:
    """Return differences and ratios of two variants over the seeds of either; a seed needs both to have a value."""
    differences: dict[int, float | None] = {}
    ratios: dict[int, float | None] = {}
    for seed in sorted(baseline.keys() | variant.keys()):
        before, after = baseline.get(seed), variant.get(seed)
        if before is None or after is None or (isinf(before) and isinf(after)):
            differences[seed] = ratios[seed] = None
            continue
        differences[seed] = after - before
        ratios[seed] = after / before if before else None
    return Paired(differences, ratios, across_seeds(differences), across_seeds(ratios))


def wilson(k: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that k of n runs have; ValueError without a run."""
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"{k} of {n} is no share of runs")
    z, share = 1.959964, k / n
    centre, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((centre + side * half) / (1 + z * z / n) for side in (-1, 1))
    return (0.0 if k == 0 else low), (1.0 if k == n else high)


def quantile_interval(values: np.ndarray, q: float) -> tuple[float, float]:
    """Return the 95 % interval of the q-quantile by order statistics, whatever the distribution. An end for which there
    are too few values is infinite. Infinite values count as such. Source: Conover, Practical Nonparametric Statistics,
    3.2."""
    from scipy.stats import quantile_test

    if not values.size:
        return -inf, inf
    interval = quantile_test(values, q=0, p=q).confidence_interval(confidence_level=0.95)
    low, high = float(interval.low), float(interval.high)
    return (-inf if isnan(low) else low), (inf if isnan(high) else high)


def least_for_quantile(q: float) -> int:
    """Return the fewest values for which that interval has an upper end: 36 for P90, 72 for P95, 368 for P99."""
    return ceil(log(0.025) / log(q))


def least_for_share(rest: float) -> int:
    """Return the fewest runs for which Wilson's interval of a share that all of them have leaves at most `rest` above 0
    to chance: 73 for 95 %."""
    z = 1.959964
    return ceil(z * z * (1 - rest) / rest - 1e-9)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean: without ends for fewer than two values, infinite where one is."""
    from scipy.stats import t

    if not np.isfinite(values).all():
        return inf, inf
    if values.size < 2:
        return -inf, inf
    half = float(t.ppf(0.975, values.size - 1) * values.std(ddof=1) / sqrt(values.size))
    mean = float(values.mean())
    return mean - half, mean + half


def fisher(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return the p-value of Fisher's exact test, two-sided: the chance of counts as unlike as k of n and other_k of
    other_n, or more so, where both have the same share. ValueError for an impossible count."""
    if not (0 <= k <= n and 0 <= other_k <= other_n):
        raise ValueError(f"{k} of {n} against {other_k} of {other_n} are no counts")
    both = k + other_k
    weights = [comb(n, i) * comb(other_n, both - i) for i in range(max(0, both - other_n), min(n, both) + 1)]
    seen = comb(n, k) * comb(other_n, other_k)
    return sum(weight for weight in weights if weight <= seen) / comb(n + other_n, both)


def share(flags: Mapping[Any, float | None]) -> Spread:
    """Return the share of runs that have something (1) or not (0), as `median`, with Wilson's interval. One run has an
    interval too, and a wide one. None: not known for a run."""
    valid = [value for value in flags.values() if value is not None]
    k, n = sum(value > 0 for value in valid), len(valid)
    if not n:
        return Spread(None, None, None, None, 0, len(flags))
    return Spread(k / n, float(min(valid)), float(max(valid)), wilson(k, n), n, len(flags) - n)


def _interval(values: np.ndarray) -> tuple[float, float]:
    draws = np.random.default_rng(_SEED).integers(values.size, size=(RESAMPLES, values.size))
    medians = np.median(values[draws], axis=1)
    return quantile(medians, 0.025), quantile(medians, 0.975)
