"""The progress of a run: counted by each shard from its own log, added up by the process that started the shards.

A shard's status: t (s of the run), sessions (concurrent), came (sessions so far), turns (ended; of calls without pause,
frames answered), failed, shed, ttfp_s (those of turns that first spoke since the last status; of text their TTFT, of
frames their latency), reply_s (those of turns complete since then, from the end of the user's speech), continuity
([continuous, judged]), send_delay_p99_ms (of the sends since then; null: none), sent, begun_s (begins of the turns that
began since then), ended_s ([begin, end] of the turns that ended since then) and complete_s (times at which replies
since then were received in full, cut or failed).
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.live.run.forecast import Phases
from harness.live.run.judged_turns import JudgedTurns
from harness.request_tables.playback import Playback, is_continuous
from workloads.trace import Trace

WINDOW_S = 10.0
"""Over which the view's TTFP is taken. [chosen]"""

_COUNTED = {
    "session_start": "came",
    "turn_done": "turns",
    "frame": "turns",
    "turn_failed": "failed",
    "session_failed": "failed",
    "shed": "shed",
}


def telling(events: pa.Table) -> pa.Table:
    """Return the rows of a log that change a status. Most rows are later tokens of a text, and change none."""
    return events.filter(pc.field("kind") != "text")


class ShardProgress:
    """Counts over a growing log of a shard; each event is read once."""

    def __init__(self, trace: Trace) -> None:
        self._spoken = {
            (turn.session, turn.turn)
            for session in trace.sessions
            for turn in session.turns
            if turn.reply_audio_s is not None
        }
        self._counts: dict[str, int] = dict.fromkeys(("came", "left", "turns", "failed", "shed"), 0)
        self._begins: dict[tuple[int, int], float] = {}
        self._begun_s: list[float] = []
        self._ended_s: list[tuple[float, float]] = []
        self._complete: set[tuple[int, int]] = set()
        self._complete_s: list[float] = []
        self._ends: dict[tuple[int, int], float] = {}
        self._players: dict[tuple[int, int], Playback] = {}
        self._cut: set[tuple[int, int]] = set()
        self._ttfp_s: list[float] = []
        self._reply_s: list[float] = []
        self._judged = [0, 0]
        self._sent = 0

    def update(self, events: pa.Table) -> None:
        """Add the new rows of the log."""
        columns = (events.column(name).to_pylist() for name in ("t", "kind", "session", "turn", "value"))
        for t, kind, session, turn, value in zip(*columns, strict=True):
            self._event(t, kind, (session, turn), value)

    def status(self, t_s: float, delays_s: np.ndarray) -> dict[str, Any]:
        """Return the status at `t_s`; `delays_s`: of the sends since the last one."""
        self._sent += delays_s.size
        ttfp_s, self._ttfp_s = self._ttfp_s, []
        reply_s, self._reply_s = self._reply_s, []
        begun_s, self._begun_s = self._begun_s, []
        ended_s, self._ended_s = self._ended_s, []
        complete_s, self._complete_s = self._complete_s, []
        return {
            "t": round(t_s, 3),
            "sessions": self._counts["came"] - self._counts["left"],
            "came": self._counts["came"],
            "turns": self._counts["turns"],
            "failed": self._counts["failed"],
            "shed": self._counts["shed"],
            "ttfp_s": [round(seconds, 4) for seconds in ttfp_s],
            "reply_s": [round(seconds, 4) for seconds in reply_s],
            "continuity": list(self._judged),
            "send_delay_p99_ms": round(1e3 * float(np.quantile(delays_s, 0.99)), 3) if delays_s.size else None,
            "sent": self._sent,
            "begun_s": begun_s,
            "ended_s": ended_s,
            "complete_s": complete_s,
        }

    def _event(self, t: float, kind: str, turn: tuple[int, int], value: float) -> None:
        if kind in _COUNTED:
            self._counts[_COUNTED[kind]] += 1
        if kind == "turn_start":
            self._begins[turn] = t
            self._begun_s.append(t)
        if kind in ("reply_done", "barge_in", "turn_failed", "turn_aborted") and turn not in self._complete:
            self._complete.add(turn)
            self._complete_s.append(t)
        if kind in ("turn_done", "turn_failed", "turn_aborted") and turn in self._begins:
            self._ended_s.append((self._begins.pop(turn), t))
        if kind == "session_end":
            self._counts["left"] += 1
        elif kind == "turn_end":
            self._ends[turn] = t
        elif kind == "frame" and turn in self._ends:
            self._ttfp_s.append(t - self._ends.pop(turn))
        elif kind == "first_text" and turn in self._ends and turn not in self._spoken:
            self._ttfp_s.append(t - self._ends[turn])
        elif kind == "audio" and value > 0 and turn in self._ends:
            if turn not in self._players:
                self._players[turn] = Playback()
                self._ttfp_s.append(t - self._ends[turn])
            self._players[turn].arrive(t, value)
        elif kind == "barge_in":
            self._cut.add(turn)
        elif kind in ("turn_done", "turn_failed"):
            self._end(t, turn, kind == "turn_done")

    def _end(self, t: float, turn: tuple[int, int], done: bool) -> None:
        player = self._players.pop(turn, None)
        ended_s = self._ends.pop(turn, None)
        if done and ended_s is not None:
            self._reply_s.append(t - ended_s)
        if turn in self._spoken and turn not in self._cut:
            continuous = done and player is not None and is_continuous(player.max_gap_s)
            self._judged = [self._judged[0] + continuous, self._judged[1] + 1]
        self._cut.discard(turn)


@dataclass
class RunProgress:
    """The newest status of every shard, and the times to first packet of the last `WINDOW_S` of the run."""

    planned: int
    """Concurrent sessions that the run is to have; in an open loop the sessions that come."""
    label: str = ""
    """Label of the point."""
    first: str = "TTFP"
    """Name of the metric in `ttfp`: TTFT where replies are not spoken; latency of frames, from the end of their
    audio."""
    expected: Phases | None = None
    """Expected phases, before the run."""
    judged: JudgedTurns | None = None
    """The turns with which the run ends; None: it ends by time."""
    forecast: Phases | None = None
    """Expected phases after the first turns; None before."""
    taken: Phases | None = None
    """Measured phases, after the run."""
    open_loop: bool = False
    stage: str = "floor"
    """The stage before the first status: floor, then start."""
    t_s: float = 0.0
    _statuses: dict[int, dict[str, Any]] = field(default_factory=dict)
    _recent: deque[tuple[float, float]] = field(default_factory=deque)

    def update(self, shard: int, status: dict[str, Any]) -> None:
        """Take a shard's status."""
        self._statuses[shard] = status
        self.t_s = max(self.t_s, status["t"])
        if self.judged is not None:
            self.judged.update(shard, status)
            self._forecast(self.judged)
        self._recent.extend((status["t"], seconds) for seconds in status["ttfp_s"])
        while self._recent and self._recent[0][0] < self.t_s - WINDOW_S:
            self._recent.popleft()

    def _forecast(self, judged: JudgedTurns) -> None:
        """Replace the expected phases by a forecast from the pace of the turns so far."""
        if self.expected is None or self.forecast is not None or judged.end_s is None:
            return
        assert judged.full_s is not None
        latest_s = self.expected.ramp_s + self.expected.load_s
        load_s = max(0.0, min(judged.end_s, latest_s) - judged.full_s)
        drain_s = 0.0 if judged.end_s < latest_s else self.expected.drain_s
        self.forecast = replace(self.expected, ramp_s=judged.full_s, load_s=load_s, drain_s=drain_s)
        self.expected = self.forecast

    def lose(self, shard: int) -> None:
        """Mark a shard as gone: its concurrent sessions have failed."""
        status = self._statuses.get(shard)
        if status is not None:
            self._statuses[shard] = {**status, "sessions": 0, "failed": status["failed"] + status["sessions"]}

    def total(self, name: str) -> int:
        """Return a count over all shards: sessions, came, turns, failed, shed or sent."""
        return sum(status[name] for status in self._statuses.values())

    def ttfp(self, percentile: float) -> float | None:
        """Return the percentile over turns with a first packet in the last seconds, s; None without one."""
        recent = [seconds for _, seconds in self._recent]
        return float(np.percentile(recent, percentile)) if recent else None

    @property
    def phase(self) -> str:
        """The current phase of the run: floor, start, ramp, load or drain."""
        if not self._statuses:
            return self.stage
        expected = self.expected
        if expected is None or expected.ramp_s <= self.t_s <= expected.ramp_s + expected.load_s:
            return "load"
        return "ramp" if self.t_s < expected.ramp_s else "drain"

    @property
    def continuity(self) -> float | None:
        """Share of continuous replies so far; None before the first."""
        ok, n = (sum(status["continuity"][i] for status in self._statuses.values()) for i in (0, 1))
        return ok / n if n else None

    @property
    def send_delay_p99_ms(self) -> float | None:
        """P99 send delay of the worst shard in its last second, ms."""
        delays_ms = [
            status["send_delay_p99_ms"] for status in self._statuses.values() if status["send_delay_p99_ms"] is not None
        ]
        return max(delays_ms, default=None)
