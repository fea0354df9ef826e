"""What a stage has measured of its own decode steps: a running straight line, step seconds against batch size."""

FORGET = 0.995
"""Weight of the past at each new step: about the last 200 steps count."""

MIN_STEPS = 16


class StepTimes:
    """Exponentially weighted least squares of step time on batch size. Policies read this, never the cost model."""

    def __init__(self) -> None:
        self._steps = 0
        self._w = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, batch: int, seconds: float) -> None:
        """One decode-only step of `batch` requests took `seconds`."""
        self._steps += 1
        self._w = FORGET * self._w + 1.0
        self._x = FORGET * self._x + batch
        self._y = FORGET * self._y + seconds
        self._xx = FORGET * self._xx + batch * batch
        self._xy = FORGET * self._xy + batch * seconds

    def predict(self, batch: int) -> float | None:
        """Expected seconds of a step of `batch` requests; None before 16 steps. A single size seen gives its mean."""
        if self._steps < MIN_STEPS:
            return None
        mean_x, mean_y = self._x / self._w, self._y / self._w
        variance = self._xx / self._w - mean_x * mean_x
        if variance < 1e-6:
            return mean_y
        slope = max(0.0, (self._xy / self._w - mean_x * mean_y) / variance)
        return max(0.0, mean_y + slope * (batch - mean_x))
