"""How long a prefill batch of so many tokens takes: a line through the latest ones."""

import math
from collections import deque
from typing import NamedTuple

KEPT = 128
"""[code] durations that are remembered; the code keeps as many of every number of requests, and takes their mean."""

SHORTEST_S, LONGEST_S = 0.010, 600.0
"""[code] what lasted less or longer was no batch."""

EMPTY_S, TOKEN_S = 0.170, 0.050 / 3500
"""As long as too few were measured. [code] 220 ms for one request and 50 ms for each further one; [paper] of 3,500
tokens on average."""

ENOUGH = 4
"""[chosen] batches that a line is drawn through."""


class Line(NamedTuple):
    """Seconds of an empty batch and of each token; `spread_s`: standard deviation of what was measured around it."""

    empty_s: float
    token_s: float
    spread_s: float = 0.0


class BatchTimes:
    """Predicts the batch times of instances that are alike. Requests differ twentyfold in length: their number says
    little of a batch.
    """

    def __init__(self) -> None:
        self._measured: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self._line: Line | None = Line(EMPTY_S, TOKEN_S)

    def add(self, tokens: int, seconds: float) -> None:
        """A batch of so many tokens has taken so long."""
        if SHORTEST_S <= seconds <= LONGEST_S:
            self._measured.append((tokens, seconds))
            self._line = None

    def predict(self, tokens: int) -> float:
        """Seconds that a batch of so many tokens takes."""
        line = self._latest()
        return line.empty_s + line.token_s * tokens

    @property
    def spread_s(self) -> float:
        """How far a batch is from its prediction (standard deviation, s)."""
        return self._latest().spread_s

    def _latest(self) -> Line:
        if self._line is None:
            self._line = self._fitted()
        return self._line

    def _fitted(self) -> Line:
        """Least squares; where all were alike, or a longer one took less, the mean whatever its size."""
        n = len(self._measured)
        mean_tokens = sum([tokens for tokens, _ in self._measured]) / n
        mean_s = sum([seconds for _, seconds in self._measured]) / n
        if n < ENOUGH:
            return Line(max(0.0, mean_s - TOKEN_S * mean_tokens), TOKEN_S)
        squares = sum([(tokens - mean_tokens) ** 2 for tokens, _ in self._measured])
        products = sum([(tokens - mean_tokens) * seconds for tokens, seconds in self._measured])
        token_s = max(0.0, products / squares) if squares else 0.0
        empty_s = mean_s - token_s * mean_tokens
        missed = sum([(seconds - empty_s - token_s * tokens) ** 2 for tokens, seconds in self._measured])
        return Line(empty_s, token_s, math.sqrt(missed / n))
