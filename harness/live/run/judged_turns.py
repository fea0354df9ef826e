"""The end of a run that is decided: when the turns that it judges have ended.

Their number is fixed before the first call, and which turns they are depends on when users began them, never on the
answers. The load goes on until the last of them has ended, so each was served under the planned load.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any

FORECAST_AFTER = 10
"""Turns under full load after which the end of the run is forecast again. [chosen]"""


@dataclass
class JudgedTurns:
    """The first `n` turns begun in the steady window (`harness.request_tables.steady_window`), as the statuses of the
    `shards` load generators tell. `slots`: of a closed loop, whose window begins when as many turns have ended; None:
    an open loop, where it begins with the run."""

    n: int
    shards: int
    slots: int | None
    full_s: float | None = None
    """A time in the steady window, as early as the statuses tell, s of the run; None: before it."""
    _begun: list[float] = field(default_factory=list)
    """Begins of turns, ascending."""
    _open: list[float] = field(default_factory=list)
    """Begins of the turns that have not ended, ascending."""
    _lasted_s: list[float] = field(default_factory=list)
    _ended: list[float] = field(default_factory=list)
    """Times at which replies were complete, cut or failed, ascending."""
    _known_s: dict[int, float] = field(default_factory=dict)

    def update(self, shard: int, status: dict[str, Any]) -> None:
        """Take a shard's status (`harness.live.run.run_progress`)."""
        self._known_s[shard] = status["t"]
        for begin_s in status["begun_s"]:
            insort(self._begun, begin_s)
            insort(self._open, begin_s)
        for begin_s, end_s in status["ended_s"]:
            self._open.remove(begin_s)
            self._lasted_s.append(end_s - begin_s)
        for complete_s in status["complete_s"]:
            insort(self._ended, complete_s)
        if self.slots is None:
            self.full_s = 0.0
        elif self.full_s is None and len(self._ended) >= self.slots:
            # Some ends may not be known yet, so this is never too soon.
            self.full_s = self._ended[self.slots - 1]

    @property
    def ended(self) -> bool:
        """True once each of the `n` turns has ended, and each that began before them."""
        last_s = self._last_s
        if last_s is None or len(self._known_s) < self.shards or min(self._known_s.values()) < last_s:
            return False
        return not self._open or self._open[0] > last_s

    @property
    def end_s(self) -> float | None:
        """Forecast of that time, s of the run, from the pace of the turns so far; None before `FORECAST_AFTER`."""
        if self.full_s is None or not self._lasted_s:
            return None
        begun = self._begun[bisect_left(self._begun, self.full_s) :]
        if len(begun) < FORECAST_AFTER or begun[-1] <= self.full_s:
            return None
        pace_s = (begun[-1] - self.full_s) / len(begun)
        return self.full_s + self.n * pace_s + sum(self._lasted_s) / len(self._lasted_s)

    @property
    def _last_s(self) -> float | None:
        """The begin of the last of the `n` turns; None before it."""
        if self.full_s is None:
            return None
        place = bisect_left(self._begun, self.full_s) + self.n - 1
        return self._begun[place] if place < len(self._begun) else None
