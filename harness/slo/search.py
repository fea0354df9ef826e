"""The largest value that passes, with few trials: doubling until one fails, then halving the gap.

It is taken for monotone: a value that passes speaks for the smaller ones, one that fails for the larger ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

Passed = Mapping[float, bool]
"""Value -> whether it passed."""

_DIGITS = 3
"""Significant digits of a value between two that are no whole numbers: nobody asks for a rate of 3.1406."""


@dataclass(frozen=True)
class Bounds:
    """Where to look. `first`: the value to begin with. `whole`: whole numbers alone. `close`: the search ends when the
    gap above N is at most N / close, or 1 of whole numbers."""

    lowest: float
    highest: float
    first: float
    whole: bool
    close: int

    def following(self, passed: Passed) -> float | None:
        """The value to try next; None when what passes is known, or that nothing does, or everything."""
        if not passed:
            return min(max(self.first, self.lowest), self.highest)
        low, high = holding(passed), breaking(passed)
        if high is None:
            assert low is not None, "what was tried passed or failed"
            return min(2 * low, self.highest) if low < self.highest else None
        if low is None:
            return max(self._between(0, high), self.lowest) if high > self.lowest else None
        if high - low <= max(1 if self.whole else 0, low // self.close if self.whole else low / self.close):
            return None
        between = self._between(low, high)
        return between if low < between < high else None

    def _between(self, low: float, high: float) -> float:
        return (low + high) // 2 if self.whole else float(f"{(low + high) / 2:.{_DIGITS}g}")


def holding(passed: Passed) -> float | None:
    """The largest value that passed below every one that failed."""
    failed = breaking(passed)
    return max((v for v, ok in passed.items() if ok and (failed is None or v < failed)), default=None)


def breaking(passed: Passed) -> float | None:
    """The smallest value that failed."""
    return min((value for value, ok in passed.items() if not ok), default=None)


def surprising(passed: Passed) -> tuple[float, float] | None:
    """The smallest value that failed, and the largest one that passed above it; None where all is monotone."""
    failed = breaking(passed)
    above = [value for value, ok in passed.items() if ok and failed is not None and value > failed]
    return (failed, max(above)) if failed is not None and above else None


@dataclass(frozen=True)
class Interval:
    """Over seeds, of the largest value that each one holds; None: a seed held none that was tried."""

    low: float | None
    middle: float | None
    high: float | None


@dataclass(frozen=True)
class Search:
    """The search of `rehearse find` for the largest value of a parameter at which every seed meets every target.

    All seeds are tried together until that value is known. Seeds that still met the targets where another one did not
    then go on by themselves, so that the largest value of each seed tells how far they differ.

    `met`: seed -> value -> whether it meets every target.
    """

    bounds: Bounds
    met: Mapping[int, Passed]

    @property
    def together(self) -> dict[float, bool]:
        """The values that were tried on every seed, and whether all met the targets."""
        first, *others = self.met.values()
        common = [value for value in first if all(value in other for other in others)]
        return {value: all(each[value] for each in self.met.values()) for value in common}

    @property
    def wanted(self) -> list[tuple[float, int]]:
        """Values and seeds to measure next; none when the search is over."""
        value = self.bounds.following(self.together)
        if value is not None:
            return [(value, seed) for seed, met in self.met.items() if value not in met]
        following = {seed: self.bounds.following(met) for seed, met in self.met.items()}
        return [(value, seed) for seed, value in following.items() if value is not None]

    @property
    def holds(self) -> float | None:
        """The largest value at which every seed meets every target; None where the smallest does not."""
        return holding(self.together)

    @property
    def breaks(self) -> float | None:
        """The smallest value that was tried on every seed and did not hold; None where the largest did."""
        return breaking(self.together)

    @property
    def interval(self) -> Interval:
        found = [holding(met) for met in self.met.values()]
        ranked = sorted(found, key=lambda value: -1.0 if value is None else value)
        known = [value for value in ranked if value is not None]
        middle = median(known) if len(known) == len(ranked) else ranked[(len(ranked) - 1) // 2]
        return Interval(ranked[0], middle, ranked[-1])

    @property
    def surprises(self) -> dict[int, tuple[float, float]]:
        """Seeds that missed a target at a smaller value than one at which they met all."""
        found = {seed: surprising(met) for seed, met in self.met.items()}
        return {seed: pair for seed, pair in found.items() if pair is not None}
