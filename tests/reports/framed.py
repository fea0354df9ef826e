"""Interaction sessions without an engine: a scripted gateway answers the frames of real traces.

Unbounded, the pool fills in a straight line that is full at `FULL_S` and seed, and from then on every Step returns at
its cap with nothing. Bounded, it stays at `PLATEAU`. With a controller on, the first `CAP` sessions are let in. Every
number is known in advance.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engines.frames.call_params import CallParams
from harness.events.log import EventLog
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.metrics.frames import summarise_frames
from harness.records.measured import RunFacts
from harness.records.record import Measurement
from harness.replays.kinds.frames import FRAMES
from harness.request_tables.frame_table import Beat, frame_table
from tests.reports.written import Fails, measurement, never, write_run
from workloads.trace import Trace

LATENCY_S, FIRST_S = {"vllm_realtime": 0.004, "recycling": 0.015}, 0.3
OTHERS_S = 0.003
FULL_S, PLATEAU, BLOCKS, CAP = 70.0, 0.25, 1000, 6
UNBOUNDED = ("vllm_realtime", "vllm_realtime_pr49439")


def calls(**changes) -> Experiment:
    """Two minutes of ten sessions, of which those of even seeds hit the wall when their KV is not bounded."""
    fields = {"name": "calls", "title": "some <small> calls", "engines": ["metronome", "vllm_realtime"]}
    small = {"deployment": "qwen3_omni_pro6000", "duration_s": 120}
    load = {"workload": "metronome", "set": small, "grid": {"sessions": [5, 10]}, "seeds": [0, 1, 2]}
    return Experiment(**{**fields, **load, **changes})


def serve(folder: Path, experiment: Experiment, fails: Fails = never) -> Path:
    """Measure every point of `experiment` with the scripted gateway; those that `fails` names fail."""
    return write_run(folder, experiment, measure, fails)


def full_s(point: Any) -> float:
    """When the pool of this point is full, in s; infinite where it never is."""
    if point.engine not in UNBOUNDED:
        return np.inf
    return FULL_S * point.params["duration_s"] / 120 * (1 if point.seed % 2 == 0 else 2)


def measure(point: Any) -> Measurement:
    trace = point.trace()
    system = point.setup.system
    assert isinstance(system, CallParams)
    beat = FRAMES.timing(system, point.setup.client, point.setup.server.deployment, trace)
    end_s = point.params["duration_s"] + 2 * beat.budget_s
    events, steps = _log(trace, point, beat, end_s), _steps(point, end_s)
    frames = frame_table(events, pd.DataFrame(trace.columns()), beat)
    metrics = summarise_frames(frames, steps, events, end_s, beat)
    return replace(measurement(trace, events, steps, frames, metrics, end_s), facts=RunFacts(end_s, beat, {"ticks": 1}))


def _log(trace: Trace, point: Point, beat: Beat, end_s: float) -> pd.DataFrame:
    rows = sorted(_rows(trace, point, beat, end_s), key=lambda row: row[0])
    log = EventLog()
    for row in [*rows, (end_s, "run_end", -1, -1)]:
        log.event(*row)
    return log.events().to_pandas()


def _rows(trace: Trace, point: Point, beat: Beat, end_s: float) -> Iterator[tuple]:
    controlled = point.params["admission"] == "aimd"
    wall_s, budget_s, steps = full_s(point), beat.budget_s, {}
    usual_s = LATENCY_S.get(point.engine, OTHERS_S)
    for session in trace.sessions:
        begin_s, own = session.turns[0].arrival_s or 0.0, session.turns[0].session
        yield begin_s, "session_start", own, -1
        if controlled and own >= CAP:
            yield begin_s, "shed", own, -1
            yield begin_s, "session_end", own, -1
            continue
        yield begin_s, "admitted", own, -1
        for turn in session.turns:
            due_s = (turn.arrival_s or 0.0) + (turn.audio_s or 0.0)
            yield due_s, "turn_end", own, turn.turn, "", 0.0
            number = int(np.ceil((due_s + turn.network_s) / budget_s - 1e-9))
            t, latency_s = number * budget_s, FIRST_S if turn.turn == 0 else usual_s
            if t >= wall_s:
                latency_s = beat.cap_s
            tokens = 0 if t >= wall_s or turn.turn == 0 else turn.output_tokens
            steps[number] = max(latency_s, steps.get(number, 0.0))
            yield t, "fed", own, turn.turn, "thinker", 28
            yield t + latency_s, "frame_out", own, turn.turn, "thinker", tokens
            yield t + latency_s + turn.network_s, "frame", own, turn.turn, "", tokens
        yield end_s - 0.5, "session_end", own, -1
    for number, latency_s in steps.items():
        yield number * budget_s, "tick", -1, number, "", 1
        yield number * budget_s + latency_s, "tick_end", -1, number, "", float(latency_s >= beat.cap_s)
        if controlled:
            yield number * budget_s + latency_s, "cap", -1, number, "", CAP


def _steps(point: Point, end_s: float) -> pd.DataFrame:
    log, wall_s = EventLog(), full_s(point)
    for t in np.arange(0.0, min(end_s, wall_s + 1), 0.5).tolist():
        share = min(1.0, t / wall_s) if np.isfinite(wall_s) else PLATEAU * min(1.0, t / 10)
        running = 0 if t >= wall_s else 5
        log.step(t, 0.02, "thinker", 0, 5, 5, 0, running, 10 - 2 * running, 0, round(BLOCKS * share), BLOCKS, 0)
    return log.steps().to_pandas()
