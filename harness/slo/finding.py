"""What `rehearse find` looks for: the largest value of a parameter at which every seed meets every target.

All seeds are tried together until that value is known. Those that still met the targets where another one did not then
go on by themselves, so that the largest value of each seed tells how far they differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from harness.slo.bisection import Bounds, Passed, breaking, holding, surprising


@dataclass(frozen=True)
class Interval:
    """Over seeds, of the largest value that each one holds; None: a seed held none that was tried."""

    low: float | None
    middle: float | None
    high: float | None


@dataclass(frozen=True)
class Search:
    """`met`: seed -> value -> whether it meets every target."""

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
