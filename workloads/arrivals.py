"""Arrival times of independent users: Poisson, and Gamma renewal processes for bursts.

Both start in an idle system: the first arrival comes one gap after time 0. Gaps have mean 1/rate.
"""

from __future__ import annotations

import numpy as np


def poisson(rng: np.random.Generator, rate: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,), non-decreasing: a Poisson process of `rate` per second."""
    return np.cumsum(rng.exponential(1 / rate, n))


def gamma(rng: np.random.Generator, rate: float, cv: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,): Gamma gaps of mean 1/rate and coefficient of variation `cv`.

    cv > 1 is burstier than Poisson. Three in four client windows of the ServeGen traces are fitted by Gamma
    gaps, with cv from 0.7 (P10) to 13 (P99).
    """
    return np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, n))
