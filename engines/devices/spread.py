"""The spread of step times around the modelled ones."""

from dataclasses import dataclass

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
        sigma = np.sqrt(np.log1p(self.cv**2))
        factors = rng.lognormal(-0.5 * sigma**2, sigma, count) if sigma else np.ones(count)
        if self.stall_chance:
            stalled = rng.random(count) < self.stall_chance
            factors *= np.where(stalled, self.stall, 1.0) / (1 + self.stall_chance * (self.stall - 1))
        return np.round(factors, 6).tolist()  # the last bits of exp() differ between machines


class Noise:
    """Draws the factor of one step after the other, the same for the same `rng` and number of `draws` at once."""

    def __init__(self, spread: Spread, rng: np.random.Generator, draws: int = 4096) -> None:
        self._spread, self._rng, self._draws = spread, rng, draws
        self._steady = spread.cv == spread.stall_chance == 0
        self._factors: list[float] = []

    def next(self) -> float:
        if self._steady:
            return 1.0
        if not self._factors:
            self._factors = self._spread.draw(self._rng, self._draws)
        return self._factors.pop()

    def spawn(self) -> "Noise":
        """Return the noise of another device, from a stream of its own."""
        return Noise(self._spread, self._rng.spawn(1)[0], self._draws)


NO_NOISE = Noise(Spread(0.0), np.random.default_rng(0))
