"""Factors of step times, drawn one after the other."""

import numpy as np

from engines.devices.spread import Spread


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
