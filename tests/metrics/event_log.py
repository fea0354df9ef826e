"""Hand-written event logs: a turn in a line or two, an open call by who sounds when, all else a quiet default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from harness.metrics.metric import Metric
from harness.request_tables.turn_taking_table import turn_taking_table

TURN_END_S = 1.0
TEXT_TOKENS = 10
PROMPT_TOKENS = 100
LABELS = ("request_class", "priority", "ttft_deadline_s", "tbt_deadline_s", "backlog")


class EventLog:
    """Collects events and the rows of the trace; turns start at 0 s and end at `TURN_END_S`."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, int, int, str, float]] = []
        self.trace_rows: list[tuple[int, int, float | None]] = []
        self.labels: dict[tuple[int, int], dict[str, object]] = {}

    def add(self, t, kind, session=0, turn=0, stage="", value=float("nan")) -> EventLog:
        self.rows.append((t, kind, session, turn, stage, value))
        return self

    def start(self, session=0, turn=0, *, spoken=True, at=0.0, lag=0.0) -> EventLog:
        """The user's turn: one second long."""
        self.trace_rows.append((session, turn, 5.0 if spoken else None))
        self.add(at, "turn_start", session, turn)
        return self.add(at + TURN_END_S, "turn_end", session, turn, value=lag)

    def label(self, session=0, turn=0, name="", priority=None, ttft=None, tbt=None, backlog=None) -> EventLog:
        """The turn's class and deadlines; a log with a label has the columns of classes."""
        self.labels[session, turn] = dict(zip(LABELS, (name, priority, ttft, tbt, backlog), strict=True))
        return self

    def text(self, *messages: tuple[float, int], session=0, turn=0) -> EventLog:
        """Text messages as (arrival in s, tokens)."""
        for index, (t, tokens) in enumerate(messages):
            self.add(t, "text" if index else "first_text", session, turn, value=tokens)
        return self

    def audio(self, *packets: tuple[float, float], session=0, turn=0) -> EventLog:
        """Packets as (arrival in s, seconds of audio)."""
        for t, audio_s in packets:
            self.add(t, "audio", session, turn, value=audio_s)
        return self

    def produce(self, session=0, turn=0, *, thinker=TEXT_TOKENS, talker=0, end="finish", at=1.0) -> EventLog:
        """Server side: each stage arrives, starts 0.1 s later, and generates its tokens in two steps."""
        for stage, tokens in (("entry", thinker), ("talker", talker)):
            if tokens:
                self.add(at, "arrive", session, turn, stage)
                self.add(at + 0.1, "start", session, turn, stage)
                self.add(at + 0.2, "token", session, turn, stage, tokens - 1)
                self.add(at + 0.3, "token", session, turn, stage, 1)
                self.add(at + 0.3, end, session, turn, stage, tokens)
        return self

    def done(self, at, session=0, turn=0, *, played=None) -> EventLog:
        """The reply is complete at `at` and, if spoken, heard to its end."""
        self.add(at, "reply_done", session, turn)
        if played is not None:
            self.add(at, "playback_done", session, turn, value=played)
        return self.add(at, "turn_done", session, turn)

    def barge_in(self, at, heard_s, session=0, turn=0, *, thinker=None, talker=None) -> EventLog:
        self.add(at, "barge_in", session, turn, value=heard_s)
        for stage, tokens in (("entry", thinker), ("talker", talker)):
            if tokens is not None:
                self.add(at, "heard", session, turn, stage, tokens)
        return self.add(at, "turn_done", session, turn)

    def spoken_turn(self, session=0, turn=0, *, at=0.0, ttfp=0.5, gap=0.0, packets=4) -> EventLog:
        """A complete spoken exchange of half-second packets, each later than the playhead by `gap`."""
        first = at + TURN_END_S + ttfp
        arrivals = [(first + index * (0.5 + gap), 0.5) for index in range(packets)]
        self.start(session, turn, at=at)
        self.produce(session, turn, talker=packets * 6, at=at + TURN_END_S)
        self.audio(*arrivals, session=session, turn=turn)
        return self.done(arrivals[-1][0] + 0.5, session, turn, played=packets * 0.5)

    @property
    def events(self) -> pd.DataFrame:
        """The log in the types and the order in which a run records it."""
        frame = pd.DataFrame(self.rows, columns=["t", "kind", "session", "turn", "stage", "value"])
        frame = frame.astype({"t": float, "kind": "category", "session": "int32", "turn": "int16", "stage": "category"})
        return frame.astype({"value": float}).sort_values("t", kind="stable", ignore_index=True)

    @property
    def trace(self) -> pd.DataFrame:
        frame = pd.DataFrame(self.trace_rows, columns=["session", "turn", "reply_audio_s"])
        frame = frame.astype({"session": int, "turn": int, "reply_audio_s": float}).assign(input_tokens=PROMPT_TOKENS)
        if not self.labels:
            return frame
        none = {**dict.fromkeys(LABELS), "request_class": ""}
        labels = pd.DataFrame([self.labels.get((row[0], row[1]), none) for row in self.trace_rows])
        return pd.concat([frame, labels.astype(dict.fromkeys(LABELS[1:], float))], axis=1)


def parts(metric: Metric) -> tuple[float | None, int, int]:
    return metric.value, metric.n, metric.missing


def are(metrics: Mapping[str, Metric], **expected: Any) -> None:
    """Fail unless the metrics have this value, n and missing."""
    for name, (value, n, missing) in expected.items():
        assert parts(metrics[name]) == (pytest.approx(value), n, missing), name


def steps(*rows: tuple[str, float, float, int, int]) -> pd.DataFrame:
    """Engine steps of the first replica as (stage, t, duration, blocks in use, blocks)."""
    return pd.DataFrame(rows, columns=["stage", "t_s", "dt_s", "kv_used", "kv_blocks"]).assign(
        replica=0, prefill_tokens=0, tokens=0
    )


class OpenCalls:
    """Collects stretches; every call returns the log, so that lines can be chained."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, int, int, str, float]] = []
        self.planned: list[tuple[int, int, str, float, float]] = []

    def turn(self, turn=0, *stretches, says="turn", event="", session=0, network_s=0.0) -> OpenCalls:
        """The user speaks from each begin to each end; two stretches: with a hesitation."""
        (begin, _), *_ = stretches
        self.planned.append((session, turn, event, 0.5 if len(stretches) > 1 else float("nan"), network_s))
        self.rows.append((begin, "turn_start", session, turn, "", float("nan")))
        for begin, end in stretches:
            self.rows.append((end, "user_speech", session, turn, says, end - begin))
        return self

    def beside(self, kind, begin, end, turn=0, session=0) -> OpenCalls:
        self.rows.append((end, "user_speech", session, turn, kind, end - begin))
        return self

    def agent(self, begin, end, reply=0, turn=0, session=0, done=True) -> OpenCalls:
        self.rows.append((end, "agent_speech", session, turn, str(reply), end - begin))
        return self.event("reply_done", end, turn, session) if done else self

    def event(self, kind, t, turn=0, session=0, stage="") -> OpenCalls:
        self.rows.append((t, kind, session, turn, stage, float("nan")))
        return self

    def told(self, label, t, reply=None, session=0) -> OpenCalls:
        self.rows.append((t, "told", session, 0, label, float("nan") if reply is None else float(reply)))
        return self

    @property
    def events(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=["t", "kind", "session", "turn", "stage", "value"]).astype(
            {"kind": "category", "stage": "category"}
        )

    @property
    def turns(self) -> pd.DataFrame:
        return pd.DataFrame(self.planned, columns=["session", "turn", "event", "pause_s", "network_s"])

    def table(self) -> pd.DataFrame:
        return turn_taking_table(self.events, self.turns)
