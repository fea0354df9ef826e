"""The spread of step times around the modelled ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Spread:
    """Factors of step times, with mean 1 and independent from step to step. `cv`: coefficient of variation of a
    lognormal. `stall_chance`: share of steps in which the host stalls too, each `stall` times as long. ValueError for
    numbers that no server has."""

    cv: float
    stall_chance: float = 0.0
    stall: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.cv <= 0.5 and 0 <= self.stall_chance <= 0.1 and 1 <= self.stall <= 100):
            raise ValueError(f"spread has cv to 0.5, stall_chance to 0.1, stall from 1 to 100, got {self}")

    def draw(self, rng: np.random.Generator, count: int) -> list[float]:
        """Return factors of `count` steps."""
        sigma = math.sqrt(math.log1p(self.cv**2))
        factors = rng.lognormal(-0.5 * sigma**2, sigma, count)
        if self.stall_chance:
            stalled = rng.random(count) < self.stall_chance
            longer = self.stall - 1
            factors *= (1 + longer * stalled) / (1 + self.stall_chance * longer)
        return factors.round(6).tolist()  # the last bits of exp() differ between machines
