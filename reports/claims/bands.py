"""Bands from a paper's precision: how far its number may lie from the truth, from printed digits and requests.

A published number comes from one run, as a rule. Its 95 % sampling error is that of n independent requests: the normal
one of a mean, the asymptotic one of a percentile (David and Nagaraja, Order Statistics, 10.2) of a log-normal
distribution, the binomial one of a share. It is at least half of the last printed digit.
"""

from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist

Z = 1.959964
SIGMA = 0.5
"""[assumed] Log-normal sigma of latencies where a paper does not print percentiles from which it follows: P95 over P50
of 2.3."""


@dataclass(frozen=True)
class Band:
    """`relative`: half-width as a share of a number; `absolute`: in its own unit. The larger one counts."""

    relative: float
    absolute: float
    because: str

    def half(self, value: float, numbers: int = 1) -> float:
        """Half-width around a value that is made of this number of independent ones."""
        return max(self.relative * abs(value), self.absolute) * sqrt(numbers)

    def over(self, number: float) -> "Band":
        """The same as a share of this number, for a ratio with it."""
        return Band(max(self.relative, self.absolute / abs(number)), 0, self.because)


def of_mean(n: int, cv: float = 1.0, printed: float = 0.0) -> Band:
    """Band of a mean of n requests whose standard deviation is cv times the mean. `printed`: the last printed digit."""
    return Band(Z * cv / sqrt(n), printed / 2, f"mean of {n:,} requests with a deviation of {cv:.0%} of it")


def of_percentile(q: float, n: int, sigma: float = SIGMA, printed: float = 0.0) -> Band:
    """Band of the q-quantile (0.9: P90) of n requests with log-normal latencies."""
    normal = NormalDist()
    error = Z * sigma * sqrt(q * (1 - q) / n) / normal.pdf(normal.inv_cdf(q))
    because = f"P{100 * q:g} of {n:,} requests, log-normal with sigma {sigma:g}"
    return Band(exp(error) - 1, printed / 2, because)


def of_share(share: float, n: int) -> Band:
    """Band of a share of n requests."""
    spread = max(Z * sqrt(share * (1 - share) / n), 0.5 / n)
    return Band(0, spread, f"a share of {n:,}")


def of_digits(printed: float) -> Band:
    """Band of a number without sampling error: one unit of the last printed digit."""
    return Band(0, printed, f"printed to {printed:g}")


def of_model(relative: float, because: str) -> Band:
    """Band of a number whose error is that of our inputs: a device model, or a value read off a figure."""
    return Band(relative, 0, because)
