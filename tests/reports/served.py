"""A results directory without an engine: scripted servers answer the users of real traces.

The baseline generates at four times the speed of speech and, at c >= 16, sends the second packet of every
other session late; the other engine answers sooner and stays `LEAD_S` ahead of the listener. Every number is
known in advance, and nothing is loaded that a report does not need.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.kinds.turns import TURNS, load_of
from harness.records.measured import RunFacts
from harness.records.record import Measurement
from tests.metrics.event_log import steps as no_steps
from tests.reports.written import Fails, measurement, never, write_run
from workloads.registry import make_trace
from workloads.trace import Trace, Turn

FRAME_S, PACKET_S, LATE_S = 0.08, 0.8, 0.5
FRAMES = 10  # of a packet
SPEED, LEAD_S = 4.0, 3.0
TTFP_S = {"vllm_omni_wo": 0.3, "vllm_omni": 0.3, "liveserve": 0.2}

Row = tuple[float, str, int, int, str, float]
NONE = float("nan")


def bench(**changes) -> Experiment:
    """The default bench in small: the card's own name, so that the paper's numbers belong to it."""
    fields = {"name": "bench", "title": "a <small> bench", "engines": ["liveserve", "vllm_omni"], "workload": "voice"}
    size = {"set": {"sessions": 6, "turns": 2}, "grid": {"c": [8, 16], "p": [0.0, 1.0]}, "seeds": [0, 1, 2]}
    return Experiment(**{**fields, **size, **changes})


def serve(folder: Path, experiment: Experiment, fails: Fails = never) -> Path:
    """Measure every point of `experiment` with the scripted servers; those that `fails` names fail."""
    return write_run(folder, experiment, measure, fails)


_answered: dict[tuple, Measurement] = {}
"""The same users are asked in many tests, and are answered once."""


def measure(point: Point) -> Measurement:
    asked = point.engine, point.trace_hash, point.params["c"], TTFP_S[point.engine]
    if asked not in _answered:
        _answered[asked] = _answer(point)
    return _answered[asked]


def _answer(point: Any) -> Measurement:
    trace = make_trace(point.workload, point.workload_params, point.seed)
    rows = sorted(_events(trace, point), key=lambda row: row[0])
    end_s, types = rows[-1][0], dict(zip(_COLUMNS, _TYPES, strict=True))
    log = pd.DataFrame([*rows, (end_s, "run_end", -1, -1, "", NONE)], columns=_COLUMNS).astype(types)
    turns, steps = pd.DataFrame(trace.columns()), no_steps()
    load = replace(load_of(point.setup.client), entry="thinker")
    requests = TURNS.requests(turns, log, load)
    metrics = TURNS.metrics(turns, log, steps, requests, end_s, load)
    return replace(measurement(trace, log, steps, requests, metrics, end_s), facts=RunFacts(end_s, load))


_COLUMNS = ["t", "kind", "session", "turn", "stage", "value"]
_TYPES: list[Any] = ["float64", "category", "int32", "int16", "category", "float64"]


def _events(trace: Trace, point: Point) -> Iterator[Row]:
    for session in trace.sessions:
        t = session.turns[0].arrival_s or 0.0
        for turn in session.turns:
            rows = list(_turn(turn, t + (turn.think_s or 0.0), point))
            yield from rows
            t = max(row[0] for row in rows)


def _turn(turn: Turn, begin_s: float, point: Any) -> Iterator[Row]:
    def event(t: float, kind: str, stage: str = "", value: float = NONE) -> Row:
        return t, kind, turn.session, turn.turn, stage, value

    end_s = begin_s + (turn.audio_s or 0.0)
    first_s = end_s + TTFP_S[point.engine]
    yield event(begin_s, "turn_start")
    yield event(end_s, "turn_end", value=0.0)
    yield event(end_s, "arrive", "thinker")
    yield event(end_s, "start", "thinker")
    yield event(end_s + 0.1, "token", "thinker", turn.output_tokens)
    yield event(end_s + 0.1, "finish", "thinker", turn.output_tokens)
    yield event(first_s, "first_text", value=turn.output_tokens)
    if turn.reply_audio_s is None:
        yield event(first_s, "reply_done")
        yield event(first_s, "turn_done")
        return
    packets = max(1, round(turn.reply_audio_s / PACKET_S))
    frames = packets * FRAMES
    cut_s = first_s + turn.barge_in_after_s if turn.barge_in_after_s is not None else None
    late = point.engine == "vllm_omni" and (point.params["c"] or 0) >= 16 and turn.session % 2 == 0
    yield event(end_s, "start", "talker")
    generated, heard_to_s = 0, first_s
    for index in range(packets):
        ahead_s = index * PACKET_S / SPEED
        if point.engine == "liveserve":
            ahead_s = max(ahead_s, index * PACKET_S - LEAD_S)
        t = first_s + ahead_s + (PACKET_S + LATE_S if late and index else 0.0)
        if cut_s is not None and t > cut_s:
            break
        generated += FRAMES
        heard_to_s = max(heard_to_s, t) + PACKET_S
        yield event(t, "token", "talker", FRAMES)
        yield event(t, "token", "vocoder", 1)
        yield event(t, "audio", value=PACKET_S)
    if cut_s is not None and cut_s < heard_to_s:
        heard = min(generated, (cut_s - first_s) // FRAME_S)
        yield event(cut_s, "abort", "talker", generated)
        yield event(cut_s, "barge_in", value=cut_s - first_s)
        yield event(cut_s, "heard", "talker", heard)
        yield event(cut_s, "heard", "thinker", int(turn.output_tokens * heard / frames))
        yield event(cut_s, "turn_done")
        return
    yield event(t, "finish", "talker", generated)
    yield event(t, "reply_done")
    yield event(heard_to_s, "playback_done", value=packets * PACKET_S)
    yield event(heard_to_s, "turn_done")
