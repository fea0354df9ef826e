"""A results directory of calls on open microphones, answered by a script: every number is known in advance.

The server takes a silence of `silence_duration_ms` for the end and starts to sound 0.2 s later, and 0.01 s more for
each call; whatever it hears over a reply silences it after 0.3 s.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from harness.experiments.experiment import Experiment
from harness.metrics.turn_taking import summarise_turn_taking
from harness.metrics.turns import summarise
from harness.records.record import Measurement
from harness.request_tables.request_table import request_table
from harness.request_tables.turn_taking_table import turn_taking_table
from tests.metrics.event_log import OpenCalls
from tests.metrics.event_log import steps as no_steps
from tests.reports.written import measurement, never, write_run
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.registry import make_trace
from workloads.trace import Session

STOPS_S = 0.3


def experiment(**changes) -> Experiment:
    fields = {"name": "duplex-test", "engines": ["vllm_omni", "liveserve"], "workload": "duplex"}
    load = {"set": {"sessions": 8, "turns": 3}, "grid": {"c": [1, 16], "silence_duration_ms": [200, 800]}}
    return Experiment(**{**fields, **load, "seeds": [0, 1], **changes})


def serve(folder: Path, wanted: Experiment) -> Path:
    return write_run(folder, wanted, measure, never)


def latency_s(c: int) -> float:
    """From when the server takes a turn for over to its first sound."""
    return 0.2 + 0.01 * c


def measure(point: Any) -> Measurement:
    trace = make_trace(point.workload, point.workload_params, point.seed)
    patience_s = point.params["silence_duration_ms"] / 1000
    log = OpenCalls()
    for session in trace.sessions:
        _call(log, session, patience_s, latency_s(point.params["c"]))
    turns = pd.DataFrame(trace.columns())
    events = log.events.sort_values("t", kind="stable", ignore_index=True)
    end_s = events["t"].to_numpy().max()
    table = turn_taking_table(events, turns)
    requests = request_table(events, turns)
    metrics = {**summarise(requests, no_steps(), end_s), **summarise_turn_taking(table)}
    rows = requests.merge(table, on=["session", "turn"])
    return measurement(trace, events, no_steps(), rows, metrics, end_s)


def _call(log: OpenCalls, session: Session, patience_s: float, latency_s: float) -> None:
    begin_s, says, reply = 0.0, "turn", 0
    for turn in session.turns:
        place: dict[str, Any] = {"turn": turn.turn, "session": session.id}
        spans = [(begin_s + a, begin_s + b) for a, b in turn.stretches]
        log.turn(turn.turn, *spans, says=says, event=turn.microphone.event or "", session=session.id)
        log.event("turn_end", spans[-1][1], **place)
        if turn.microphone.pause_s and turn.microphone.pause_s > patience_s + latency_s:
            at_s = spans[0][1] + patience_s + latency_s
            log.agent(at_s, spans[1][0] + STOPS_S, reply, done=False, **place)
            log.told("stopped", spans[1][0] + STOPS_S, reply, session.id)
            reply += 1
        end_s = spans[-1][1]
        first_s = end_s + patience_s + latency_s
        last_s = first_s + (turn.reply_audio_s or 0.0)
        says, begin_s = "turn", last_s + 0.5
        if turn.microphone.event == "correction":
            says, begin_s = "correction", end_s + (turn.microphone.event_after_s or 0.0)
        elif turn.microphone.event:
            at_s = first_s + (turn.microphone.event_after_s or 0.0)
            cut_s = min(last_s, at_s + STOPS_S)
            if turn.microphone.event in TAKES_FLOOR:
                says, begin_s = "interruption", at_s
            else:
                until_s = at_s + (turn.microphone.event_s or 0.0)
                log.beside(turn.microphone.event, at_s, until_s, **place)
                begin_s = max(cut_s, until_s) + 1.0
            log.told("stopped", cut_s, reply, session.id)
            last_s = cut_s
        if begin_s > first_s:
            log.told("committed", end_s + patience_s, session=session.id)
            log.told("reply_begun", end_s + patience_s + 0.01, reply, session.id)
            log.told("first_packet", first_s - 0.02, reply, session.id)
            log.agent(first_s, last_s, reply, done=not turn.microphone.event, **place)
            reply += 1
