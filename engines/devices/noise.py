"""Factors of step times and pauses of the host, drawn one after the other."""

import numpy as np

from engines.devices.spread import Spread


class Noise:
    """Draws one step after the other, the same for the same `rng` and number of `draws` at once."""

    def __init__(self, spread: Spread, rng: np.random.Generator, draws: int = 4096) -> None:
        self._spread, self._rng, self._draws = spread, rng, draws
        self._factors: list[float] = []
        self._stalls: list[float] = []
        self._stall_rng = rng.spawn(1)[0] if spread.stall_chance else None

    def next(self) -> float:
        """Return the factor of the next step."""
        if not self._spread.cv:
            return 1.0
        if not self._factors:
            self._factors = self._spread.draw(self._rng, self._draws)
        return self._factors.pop()

    def next_stall_s(self) -> float:
        """Return the seconds for which the host stalls before the next step."""
        if self._stall_rng is None:
            return 0.0
        if not self._stalls:
            self._stalls = self._spread.stalls(self._stall_rng, self._draws)
        return self._stalls.pop()

    def spawn(self) -> "Noise":
        """Return the noise of another device, from a stream of its own."""
        return Noise(self._spread, self._rng.spawn(1)[0], self._draws)


NO_NOISE = Noise(Spread(0.0), np.random.default_rng(0))
