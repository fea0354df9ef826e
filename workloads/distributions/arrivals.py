"""Arrival times of independent users: renewal processes, a rate that changes, and the peak of a record.

All start in an idle system: the first arrival comes one gap after time 0. Gaps have mean 1/rate. The schedule
is drawn once and dealt out afterwards (`workloads.transforms.shard`): drawn in several workers it would not be this
process.
"""

import numpy as np
from numpy.typing import ArrayLike

from workloads.deferred import Deferred

root_scalar = Deferred("scipy.optimize:root_scalar")
gammaln = Deferred("scipy.special:gammaln")


def poisson(rng: np.random.Generator, rate: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,), non-decreasing: a Poisson process of `rate` per second."""
    return np.cumsum(rng.exponential(1 / rate, n))


def gamma(rng: np.random.Generator, rate: float, cv: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,): Gamma gaps of mean 1/rate and coefficient of variation `cv`.

    cv > 1 is burstier than Poisson. Three in four client windows of the ServeGen traces are fitted by Gamma
    gaps, with cv from 0.7 (P10) to 13 (P99).
    """
    return np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, n))


def weibull(rng: np.random.Generator, rate: float, cv: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,): Weibull gaps of mean 1/rate and coefficient of variation `cv`.

    The other quarter of ServeGen's client windows. At the same cv > 1 more of the gaps are short than with
    Gamma gaps, and the long ones are longer.
    """
    shape = weibull_shape(cv)
    return np.cumsum(rng.weibull(shape, n) / (rate * np.exp(gammaln(1 + 1 / shape))))


def weibull_shape(cv: float) -> float:
    """Shape k of the Weibull law whose coefficient of variation is `cv`, from 0.02 to 200; 1 is
    exponential.
    """

    def excess(log_k: float) -> float:
        k = np.exp(log_k)
        return gammaln(1 + 2 / k) - 2 * gammaln(1 + 1 / k) - np.log1p(cv**2)

    return float(np.exp(root_scalar(excess, bracket=(np.log(0.1), np.log(100))).root))


def constant(rate: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,), 1/rate apart."""
    return np.arange(1, n + 1) / rate


def follow(unit: np.ndarray, time_s: ArrayLike, rate: ArrayLike) -> np.ndarray:
    """Arrivals of a process of rate 1 moved so that they follow a rate that changes; shape as `unit`.

    The rate is linear between the knots (time_s, rate) and stays as it is after the last, where it must be
    positive; two knots at one time are a step. Time is changed so that the integral of the rate up to arrival
    i is unit[i], so a Poisson process becomes the Poisson process of this rate, and gaps of another law keep
    their law in units of the expected gap.
    """
    t, r = np.asarray(time_s, np.float64), np.asarray(rate, np.float64)
    t, r = np.append(t, t[-1] + 1.0), np.append(r, r[-1])
    width = np.diff(t)
    mass = np.concatenate([[0.0], np.cumsum(width * (r[1:] + r[:-1]) / 2)])
    at = np.minimum(np.searchsorted(mass, unit, side="right") - 1, len(width) - 1)
    need = unit - mass[at]
    slope = np.divide(np.diff(r), width, out=np.zeros_like(width), where=width > 0)[at]
    root = np.sqrt(np.maximum(r[at] ** 2 + 2 * slope * need, 0.0))
    return t[at] + np.divide(2 * need, r[at] + root, out=np.zeros_like(need), where=need > 0)


def ramp(unit: np.ndarray, start: float, end: float, duration_s: float, steps: int) -> np.ndarray:
    """`follow` a rate from `start` to `end` per second: linear, or in `steps` equal steps if `steps` > 0.

    With steps the first level is `start`, the last `end`, and each lasts duration_s / steps; `end` then stays.
    """
    if not steps:
        return follow(unit, [0.0, duration_s], [start, end])
    edges = np.arange(steps + 1) * duration_s / steps
    levels = np.linspace(start, end, steps) if steps > 1 else np.array([end])
    return follow(unit, np.repeat(edges, 2)[1:-1], np.repeat(levels, 2))


def modulated(rng: np.random.Generator, rate: float, cv: float, swing: float, regime: float, n: int) -> np.ndarray:
    """n arrival times in s, shape (n,): Gamma gaps of `cv` whose rate is drawn anew for every regime.

    A regime lasts regime / rate seconds, in which `regime` arrivals are expected on average; its rate is
    lognormal with mean `rate` and log-spread `swing`. All in units of the mean gap, so scaling time changes
    no shape.
    """
    unit = gamma(rng, 1.0, cv, n)
    levels: list[float] = []
    covered = 0.0
    while covered <= unit[-1]:
        more = np.exp(swing * rng.standard_normal(1024) - swing**2 / 2)
        levels += more.tolist()
        covered += float(more.sum()) * regime
    edges = np.arange(len(levels) + 1) * regime
    return follow(unit, np.repeat(edges, 2)[1:-1], np.repeat(levels, 2)) / rate


def busiest(times: np.ndarray, length_s: float) -> float:
    """Start in s of the window of `length_s` with the most of `times` (ascending): one of them."""
    held = np.searchsorted(times, times + length_s, side="left") - np.arange(len(times))
    return float(times[np.argmax(held)])


def scale_to_peak(times: np.ndarray, rate: float, window_s: float) -> float:
    """Return the divisor of `times` (ascending, s) at which the busiest `window_s` holds rate * window_s arrivals.

    A window holds k arrivals when the first and the last of them are no further apart than it is long, so the scale is
    the shortest stretch of k arrivals by the window. ValueError when that cannot be.
    """
    k = max(2, round(rate * window_s))
    if k > len(times):
        raise ValueError(f"a peak of {rate:g}/s over {window_s:g} s takes {k} requests and there are {len(times)}")
    shortest = float(np.min(times[k - 1 :] - times[: len(times) - k + 1]))
    if shortest <= 0:
        raise ValueError(f"{k} requests come at once, so no speed gives a peak of {rate:g}/s over {window_s:g} s")
    return shortest / window_s


def windows(
    rng: np.random.Generator, window_s: float, rate: np.ndarray, cv: np.ndarray, weibull_law: np.ndarray
) -> np.ndarray:
    """Arrival times in s of one client, whose rate and gaps are given for successive windows of `window_s`.

    rate, cv and weibull_law (else Gamma) have shape (windows,). A gap follows the law of the window in which it
    begins, in units of the expected gap, and goes on at the rate of the next. The process starts in its steady
    state: begun at an arrival it would have (cv^2 - 1) / 2 arrivals too many.
    """
    mass = np.concatenate([[0.0], np.cumsum(rate * window_s)])
    times: list[np.ndarray] = []
    at: float | None = None
    for index in np.flatnonzero(rate > 0).tolist():
        gaps = _Gaps(rng, float(cv[index]), bool(weibull_law[index]))
        at = gaps.remainder() if at is None else at
        while at < mass[index + 1]:
            remaining = mass[index + 1] - at
            more = at + np.cumsum(gaps.draw(int(remaining + 4 * np.sqrt(remaining) + 16)))
            within = int(np.searchsorted(more, mass[index + 1]))
            times.append(np.concatenate([[at], more[:within]]))
            at = float(more[within]) if within < len(more) else float(more[-1] + gaps.draw(1)[0])
    if not times:
        return np.zeros(0)
    at_s = np.repeat(np.arange(len(rate) + 1) * window_s, 2)[1:-1]
    return follow(np.concatenate(times), [*at_s, at_s[-1]], [*np.repeat(rate, 2), 1.0])


class _Gaps:
    """Gaps of mean 1."""

    def __init__(self, rng: np.random.Generator, cv: float, weibull_law: bool) -> None:
        self.rng, self.weibull_law = rng, weibull_law
        self.shape = weibull_shape(cv) if weibull_law else 1 / cv**2
        self.mean = np.exp(gammaln(1 + 1 / self.shape)) if weibull_law else self.shape

    def draw(self, n: int) -> np.ndarray:
        """n gaps, shape (n,)."""
        raw = self.rng.weibull(self.shape, n) if self.weibull_law else self.rng.gamma(self.shape, 1.0, n)
        return raw / self.mean

    def remainder(self) -> float:
        """Return the time from a moment of the steady state to the next arrival: a uniform part of a gap chosen by
        its length."""
        if self.weibull_law:
            longer = self.rng.gamma(1 + 1 / self.shape) ** (1 / self.shape)
        else:
            longer = self.rng.gamma(1 + self.shape)
        return float(self.rng.random() * longer / self.mean)
