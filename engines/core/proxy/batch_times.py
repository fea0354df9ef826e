"""How long a prefill batch of so many requests takes, from the latest ones (OmniInfer's code)."""

from collections import deque

LARGEST, KEPT = 64, 128
"""[code] sizes that are told apart, and durations that are remembered of each."""

SHORTEST_S, LONGEST_S = 0.010, 600.0
"""[code] what lasted less or longer was no batch."""

BEFORE_S = (0.22, 0.28, 0.33, 0.38)
"""[code] of 1 to 4 requests, as long as none was measured."""
EACH_MORE_S, MOST_S = 0.05, 30.0
"""[code] for each request beyond those, and the most."""


class BatchTimes:
    """Of one node: a ring of durations for every size."""

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = {}

    def add(self, size: int, seconds: float) -> None:
        """A batch of `size` requests has taken so long."""
        if size >= 1 and SHORTEST_S <= seconds <= LONGEST_S:
            self._measured.setdefault(min(size, LARGEST), deque(maxlen=KEPT)).append(seconds)

    def predict(self, size: int) -> float:
        """Seconds that a batch of so many requests takes, by the mean of its size; 0 of none."""
        if size < 1:
            return 0.0
        measured = self._measured.get(min(size, LARGEST))
        if measured:
            return sum(measured) / len(measured)
        known = len(BEFORE_S)
        before = BEFORE_S[min(size, known) - 1] + EACH_MORE_S * max(0, size - known)
        return min(MOST_S, before)
