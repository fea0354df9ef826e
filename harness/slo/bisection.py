"""The largest value that passes, with few trials: doubling until one fails, then halving the gap.

It is taken for monotone: a value that passes speaks for the smaller ones, one that fails for the larger ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
