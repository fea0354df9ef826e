"""The spread of step times around the modelled ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Spread:
    """Step times around the modelled ones, independent from step to step. `cv`: coefficient of variation of a lognormal
    factor with mean 1. `stall_chance`: share of steps before which the host stalls, for `stall_s` seconds whatever the
    step computes. ValueError for numbers that no server has."""

    cv: float
    stall_chance: float = 0.0
    stall_s: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.cv <= 0.5 and 0 <= self.stall_chance <= 0.1 and 0 <= self.stall_s <= 10):
            raise ValueError(f"spread has cv to 0.5, stall_chance to 0.1, stall_s to 10, got {self}")
        if (self.stall_chance > 0) != (self.stall_s > 0):
            raise ValueError(f"spread has stall_chance and stall_s together, got {self}")

    def draw(self, rng: np.random.Generator, count: int) -> list[float]:
        """Return factors of `count` steps."""
        sigma = math.sqrt(math.log1p(self.cv**2))
        factors = rng.lognormal(-0.5 * sigma**2, sigma, count)
        return factors.round(6).tolist()  # the last bits of exp() differ between machines

    def stalls(self, rng: np.random.Generator, count: int) -> list[float]:
        """Return seconds for which the host stalls before each of `count` steps."""
        return (self.stall_s * (rng.random(count) < self.stall_chance)).tolist()
