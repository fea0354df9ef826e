"""Live records without a network: a scripted endpoint answers the users of real traces over a scripted wire.

It answers in `TTFP_S`, later sessions `SLOWER_S` later each, turns every session away whose number is a multiple of 10,
and hangs up on every tenth of the others. From `BROKEN_AT` calls on the generator itself is late. Every number is known
in advance.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.by_device import expand
from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.experiments.experiment import Experiment
from harness.live.kinds.turns import TURNS
from harness.live.run.plan import FAILURES, SENDS
from harness.metrics.live import LAG
from harness.records.measured import LiveFacts, RunFacts, metrics_of
from harness.records.record import Measurement, write_failure, write_record
from harness.records.results import claim, write_summary
from harness.request_tables.wait_parts import HEARD, with_parts
from tests.metrics.event_log import steps as no_steps
from tests.reports.written import here, measurement
from workloads.registry import make_trace
from workloads.trace import Trace

TTFP_S, SLOWER_S, HEARD_S = 0.25, 0.01, 0.1
DELAY_S, LATE_DELAY_S, FLOOR_S = 0.0008, 0.05, 0.0005
LAG_COUNTS = {"0.002": 90, "0.005": 100, "+Inf": 100}
"""Timers a second of the server's loop that were at most so late (s): their P99 is 4.7 ms."""
LIMIT_MS, BROKEN_AT = 20.0, 32
ERROR = f"INVALID: the P99 of the send delay is {1000 * LATE_DELAY_S:g} ms, above send_delay_limit_ms={LIMIT_MS:g}"
URL = "ws://localhost:8765/v1/realtime"

Play = Callable[[Trace, int, EventLog, list], float]
"""Writes what the callers of a trace, c at once, went through into the log, and the failures of turns as tuples
(t, session, turn, reason); returns the end of the run, s."""


def live(**changes) -> Experiment:
    """Calls to an endpoint, c at once."""
    fields = {"name": "live", "title": "an <endpoint> measured", "engines": ["endpoint"], "device": "live"}
    called = {"sessions": 24, "turns": 2, "p": 0.5, "url": URL, "dialect": "openai"}
    load = {"workload": "voice", "set": called, "grid": {"c": [4, 8, 32]}, "seeds": [0, 1]}
    return Experiment(**{**fields, **load, **changes})


def serve_live(folder: Path, experiment: Experiment | None = None, more: bool = True, play: Play | None = None) -> Path:
    """Write every point; those with `BROKEN_AT` calls and more are INVALID. Without `more`, no scrape and no floor.
    `play`: another endpoint than this one."""
    experiment = experiment or live()
    points: Any = expand(experiment)
    started = datetime(2025, 1, 1, tzinfo=UTC)
    with claim(folder, experiment) as points_dir:
        for point in points:
            bad = point.params["c"] >= BROKEN_AT
            target = points_dir / (f"{point.id}.failed" if bad else point.id)
            target.mkdir()
            measurement = measured(point, more, play)
            if bad:
                write_failure(target, point, ERROR, here(), started, measurement)
            else:
                write_record(target, point, measurement, {}, here(), started)
        write_summary(folder, [point.id for point in points])
    return folder


def measured(point: Any, more: bool = True, play: Play | None = None) -> Measurement:
    trace = make_trace(point.workload, point.workload_params, point.seed)
    log, failures = EventLog(), []
    end_s = (play or _play)(trace, point.params["c"], log, failures)
    log.event(end_s, "run_end", -1, -1)
    frame = log.events().to_pandas()
    client = ClientParams.model_validate({"c": point.params["c"]})
    load = TURNS.target_timing(trace, client)
    turns = pd.DataFrame(trace.columns())
    requests = with_parts(TURNS.requests(turns, frame, load), frame)
    sends = _sends(requests, point)
    lost = pa.Table.from_pylist([dict(zip(FAILURES.names, each, strict=True)) for each in failures], FAILURES)
    floor = {"send_delay_p50_s": FLOOR_S / 2, "send_delay_p99_s": FLOOR_S, "bias_p50_s": 0.0001, "bias_p99_s": 0.0004}
    floor = floor if more else {}
    facts = RunFacts(end_s, load, live=LiveFacts(LIMIT_MS / 1000, floor))
    tables = {"sends": sends, "failures": lost, **({"scrape": _scrape(end_s)} if more else {})}
    read = {name: table.to_pandas() for name, table in tables.items()}
    metrics = metrics_of(TURNS, facts, turns, frame, no_steps(), requests, read, trace)
    return replace(
        measurement(trace, frame, no_steps(), requests, metrics, end_s),
        facts=facts,
        cost={"wall_s": end_s, "simulated_s": end_s, **({"floor": floor} if more else {})},
        more=tables,
    )


def _play(trace: Trace, c: int, log: EventLog, failures: list, hears: bool = False) -> float:
    """c callers at once, one after the other; returns when the last has gone."""
    free = [0.0] * c
    for session in trace.sessions:
        place = int(np.argmin(free))
        t = free[place]
        log.event(t, "session_start", session.id, -1)
        if session.id % 10 == 0:
            log.event(t, "shed", session.id, -1)
            log.event(t, "session_end", session.id, -1)
            _fail(log, failures, t, session.id, 0, "error: overloaded")
            continue
        log.event(t + 0.01, "connected", session.id, -1, value=0.003)
        for turn in session.turns:
            begin_s = t + (turn.think_s or 0.0)
            end_s = begin_s + (turn.audio_s or 1.0)
            if session.id % 10 == 3 and turn.turn == 1:
                _fail(log, failures, end_s, session.id, turn.turn, "closed 1006")
                t = end_s
                break
            log.event(begin_s, "turn_start", session.id, turn.turn)
            log.event(end_s, "turn_end", session.id, turn.turn, value=0.0)
            if hears:
                log.event(end_s + HEARD_S, HEARD, session.id, turn.turn)
            first_s = end_s + TTFP_S + SLOWER_S * session.id
            packets = max(1, round((turn.reply_audio_s or 1.0) / 0.5))
            log.event(first_s, "first_text", session.id, turn.turn, value=1)
            for packet in range(packets):
                log.event(first_s + 0.25 * packet, "audio", session.id, turn.turn, value=0.5)
            if turn.barge_in_after_s is not None and turn.barge_in_after_s < 0.5 * packets:
                t = first_s + turn.barge_in_after_s
                log.event(t, "barge_in", session.id, turn.turn, value=turn.barge_in_after_s)
            else:
                log.event(first_s + 0.25 * packets, "reply_done", session.id, turn.turn)
                t = first_s + 0.5 * packets
                log.event(t, "playback_done", session.id, turn.turn, value=0.5 * packets)
            log.event(t, "turn_done", session.id, turn.turn)
        log.event(t, "session_end", session.id, -1)
        free[place] = t
    return max(free)


def play_heard(trace: Trace, c: int, log: EventLog, failures: list) -> float:
    """The same, of a server that reports the end of each turn `HEARD_S` after it."""
    return _play(trace, c, log, failures, hears=True)


def _fail(log: EventLog, failures: list, t: float, session: int, turn: int, reason: str) -> None:
    for kind in ("turn_start", "turn_end", "turn_failed"):
        log.event(t, kind, session, turn)
    failures.append((t, session, turn, reason))


def _sends(requests: pd.DataFrame, point: Any) -> pa.Table:
    """Twenty chunks a turn, one in fifty of them ten times as late as the others."""
    due_s = np.sort(np.repeat(requests["turn_end_s"].dropna().to_numpy(), 20))
    usual = LATE_DELAY_S if point.params["c"] >= BROKEN_AT else DELAY_S
    send_delay_s = np.full(due_s.size, usual / 10)
    send_delay_s[::50] = usual
    kinds = pa.array(np.resize(["audio"] * 19 + ["commit"], due_s.size))
    sessions = pa.array(np.zeros(due_s.size, np.int32))
    return pa.table([kinds, sessions, pa.array(due_s), pa.array(send_delay_s)], schema=SENDS)


def _scrape(end_s: float) -> pa.Table:
    rows: list[tuple[float, str, str, float]] = []
    for t in np.arange(0.0, end_s, 1.0).tolist():
        rows += [
            (t, "up", "{}", 1.0),
            (t, "rehearsal_sessions_open", "{}", float(t % 7)),
            (t, "rehearsal_tokens_total", '{"engine":"e","stage":"thinker"}', 40 * t),
            (t, "rehearsal_tokens_total", '{"engine":"e","stage":"talker"}', 25 * t),
            *((t, f"{LAG}_bucket", f'{{"le":"{le}"}}', count * t) for le, count in LAG_COUNTS.items()),
        ]
    return pa.Table.from_pandas(pd.DataFrame(rows, columns=["t_s", "name", "labels", "value"]), preserve_index=False)
