"""Turns that every variant served from the same trace, so that one can be looked at under each of them;
and one spoken reply as curves over time: what each stage has made of it, and what the listener has heard."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.request_tables.playback import Playback
from reports.runs.measured import Measured, Run, Variant


class TurnLog:
    """The events of one turn, as arrays; times in s since `origin_s`."""

    def __init__(self, events: pd.DataFrame, origin_s: float = 0.0) -> None:
        self._t = np.asarray(events["t"], dtype=float) - origin_s
        self._value = np.asarray(events["value"], dtype=float)
        self._kind = np.asarray(events["kind"], dtype=str)
        self._stage = np.asarray(events["stage"], dtype=str)

    def times(self, kind: str, stage: str = "") -> np.ndarray:
        return self._t[(self._kind == kind) & (self._stage == stage)]

    def values(self, kind: str, stage: str = "") -> np.ndarray:
        return self._value[(self._kind == kind) & (self._stage == stage)]

    def first(self, kind: str, stage: str = "") -> float | None:
        """Time of the first such event; None without one."""
        times = self.times(kind, stage)
        return float(times[0]) if times.size else None

    def playback(self) -> list[tuple[float, float]]:
        """Playback of the reply: (begin, end) of each stretch without a pause. The last one ends with the audio or
        the barge-in."""
        player = Playback()
        stretches: list[tuple[float, float]] = []
        for t, audio_s in zip(self.times("audio").tolist(), self.values("audio").tolist(), strict=True):
            if audio_s <= 0:
                continue
            pause_s = player.arrive(t, audio_s)
            begin = t if pause_s > 0 or not stretches else stretches.pop()[0]
            stretches.append((begin, player.end_s))
        cut_s = self.first("barge_in")
        return stretches if cut_s is None else [(begin, min(end, cut_s)) for begin, end in stretches]


@dataclass(frozen=True, eq=False)
class SharedTurn:
    """One turn of the trace, as every variant served it."""

    seed: int
    session: int
    turn: int
    points: Mapping[Variant, Measured]
    rows: Mapping[Variant, Mapping[str, Any]]
    """Its row of the request table, see `harness.request_tables.request_table.COLUMNS`."""

    @property
    def name(self) -> str:
        return f"session {self.session}, turn {self.turn}"

    @property
    def followed(self) -> bool:
        """True if the session's next turn ran under every variant."""
        return all((self.session, self.turn + 1) in point.turns for point in self.points.values())

    def logs(self, variant: Variant, origin: str, turns: int = 1) -> list[TurnLog]:
        """Return the log of this turn and the following ones; times count from this column of its own row."""
        events = self.points[variant].events(self.session)
        number = np.asarray(events["turn"])
        parts = [events.loc[number == turn] for turn in range(self.turn, self.turn + turns)]
        return [TurnLog(part, self.rows[variant][origin]) for part in parts if len(part)]


def shared_turns(run: Run, where: Mapping[str, Any], status: str) -> list[SharedTurn]:
    """The spoken turns at these parameters that ended with `status` under every variant, seed by seed."""
    turns = []
    for seed in run.seeds:
        points = {
            variant: point
            for variant in run.variants
            for point in run.at(variant, **where)
            if point.seed == seed and point.error is None
        }
        if len(points) < len(run.variants) or len({point.point.trace_hash for point in points.values()}) > 1:
            continue
        tables = {variant: _turns(point.requests, status) for variant, point in points.items()}
        for session, turn in sorted(set.intersection(*(set(table) for table in tables.values()))):
            rows = {variant: table[session, turn] for variant, table in tables.items()}
            turns.append(SharedTurn(seed, session, turn, points, rows))
    return turns


def _turns(requests: pd.DataFrame, status: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The rows of a request table by session and turn, of spoken replies that ended so."""
    kept = requests.loc[(requests["status"] == status) & (requests["audio_s"] > 0)]
    return {(row["session"], row["turn"]): row for row in kept.to_dict("records")}


Curve = tuple[np.ndarray, np.ndarray]
"""Times in s, and seconds of speech by then, from zero; a step at each time."""


class ReplyLog:
    """A reply that was heard to its end. Its times have the origin of the log's times.

    `row` is its row of the request table. Text counts as the speech it stands for: the reply's seconds, shared out
    evenly over its text tokens.
    """

    def __init__(self, log: TurnLog, row: Mapping[str, Any]) -> None:
        frame_s, token_s = (row["audio_s"] / row[f"generated_{stage}"] for stage in ("talker", "entry"))
        self.talker = _cumulative(log.times("token", "talker"), log.values("token", "talker") * frame_s)
        self.thinker = _cumulative(log.times("token", "thinker"), log.values("token", "thinker") * token_s)
        self.delivered = _cumulative(log.times("audio"), log.values("audio"))
        self.decoded_s = log.times("token", "vocoder")
        """Times at which each packet of `delivered` left the vocoder."""
        self._heard = np.array(log.playback())
        self.generation_span_s = float(self.talker[0][-1]) - (log.first("start", "talker") or 0.0)
        self.playback_span_s = float(self._heard[-1, 1] - self._heard[0, 0])
        self.generated_by_s = float(self.talker[0][-1])
        """Time of the talker's last frame."""
        self.heard_by_s = float(self._heard[-1, 1])
        """End of playback."""
        self.clock = np.linspace(0, self.heard_by_s, 400)

    def generated(self, clock: np.ndarray) -> np.ndarray:
        times, speech = self.talker
        return speech[np.searchsorted(times, clock, side="right") - 1] * (clock >= times[0])

    def played(self, clock: np.ndarray) -> np.ndarray:
        """Speech heard by each time: each stretch of playback adds what of it has passed."""
        begins, ends = self._heard.T
        return np.clip(clock[:, None] - begins, 0, ends - begins).sum(axis=1)


def _cumulative(times: np.ndarray, speech_s: np.ndarray) -> Curve:
    return np.r_[times[:1], times], np.r_[np.zeros(len(times[:1])), speech_s.cumsum()]
