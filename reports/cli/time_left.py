"""How long a run will go on, from how long its first points took: points differ by their engine and their users."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from harness.executors import Outcome
from harness.experiments.experiment import Point

SYSTEM = 2.0
"""What a system's point takes of what one of a plain engine of the same size does, until both are known: its policy
looks at every request in every step (bench: 1.8). [chosen]"""


class TimeLeft:
    """Estimates the time left of `points` that are to be measured, `jobs` at a time (None: as many as are seen to
    run).
    """

    def __init__(self, points: Iterable[Point], jobs: int | None) -> None:
        self._jobs = jobs
        self._left = {point.id: point for point in points}
        self._middle = median(map(size, self._left.values())) if self._left else 1.0
        self._taken_s: dict[str, float] = defaultdict(float)
        self._sizes: dict[str, float] = defaultdict(float)
        self._weight = 0.0

    def ended(self, outcome: Outcome) -> None:
        """A point has ended; how long one took that failed tells nothing of the others."""
        point = outcome.point
        self._left.pop(point.id, None)
        if outcome.status == "ok":
            self._taken_s[point.engine] += outcome.wall_s
            self._sizes[point.engine] += self._share(point)
            self._weight += self._share(point) * factor(point.engine)

    def seconds(self, elapsed_s: float, under_way: float = 0.0) -> float | None:
        """What is left, s; None before a point was measured. `elapsed_s`: since the run began; `under_way`: how much is
        done of the points that run, 1 for a whole one."""
        if not self._weight:
            return None
        expected = [self._expected_s(point) for point in self._left.values()]
        if not expected:
            return 0.0
        at_once = self._jobs or max(1.0, sum(self._taken_s.values()) / elapsed_s)
        share = 1 - min(under_way, len(expected)) / len(expected)
        return share * max(sum(expected) / at_once, max(expected) if under_way == 0 else 0.0)

    def _expected_s(self, point: Point) -> float:
        """As its engine's points so far, or else as all of them."""
        if point.engine in self._sizes:
            return self._share(point) * self._taken_s[point.engine] / self._sizes[point.engine]
        return self._share(point) * factor(point.engine) * sum(self._taken_s.values()) / self._weight

    def _share(self, point: Point) -> float:
        """Of the middle point: half of what that takes any point does, however small. [chosen]"""
        return (1 + size(point) / self._middle) / 2


def size(point: Point) -> float:
    """What a point's time grows with: turns, or seconds of calls without pause; 1 where its parameters do not tell."""
    users = next((point.params[name] for name in ("sessions", "requests") if point.params.get(name)), 1)
    each = next(
        (point.params[name] for name in ("turns", "rounds", "duration_s") if point.params.get(name)), 1
    )
    return float(users) * float(each)


def factor(engine: str) -> float:
    """What a point of an engine is taken to cost, of a plain one's."""
    from engines.registry import beside_baselines

    return SYSTEM if engine in beside_baselines() else 1.0
