"""One live run: floor, load generators, what they left, and its numbers as an ordinary measurement."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from harness.client.params import ClientParams
from harness.experiment import Point
from harness.kinds import kind_of
from harness.live.run.floor import measure_floor
from harness.live.run.launch import RunOutput, Show, play_plan
from harness.live.run.merge import Merged
from harness.live.run.plan import results_of, write_plan
from harness.live.run.progress import RunProgress
from harness.live.target import TargetParams
from harness.log import EventLog
from harness.metrics.live_summary import summarise_live
from harness.record import LOG, InvalidPoint, Measurement
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

TOKEN_S = 0.02
"""A text reply takes so long for each token: people read no faster. [chosen]"""
FLOOR_S = 4.0
"""Of the run against the null server. [chosen]"""


def measure_live(
    point: Point, show: Show | None = None, timeout_s: float = 900, say: Callable[[str], None] = print
) -> Measurement:
    """Measure a point of device live, whose server parameters are a `TargetParams`.

    InvalidPoint, with everything that was measured, when the load was not the planned one: the P99 of the send slip is
    above the limit, or a load generator was lost. UserError and GeneratorFailed when it could not begin. `say` is given
    what the generators printed.
    """
    target = TargetParams.model_validate(point.server_params)
    return measure_target(point, target, show, timeout_s, say=say)


def measure_target(
    point: Point,
    target: TargetParams,
    show: Show | None = None,
    timeout_s: float = 900,
    *,
    timing: Any = None,
    say: Callable[[str], None] = print,
) -> Measurement:
    """Play the point's users against `target`; otherwise as `measure_live`.

    `timing`: what the metrics need to know of the server (`harness.kinds`), where it is known.
    """
    begun = time.perf_counter()
    trace = point_trace(point)
    client = ClientParams.model_validate(point.client_params)
    kind = kind_of(trace)
    progress = RunProgress(client.c or len(trace.sessions), point.label, kind.first_answer(target, trace))
    check_answers(target)
    floor = _floor(kind.floor(target), client.c or on_line(trace), target)
    with tempfile.TemporaryDirectory(prefix="rehearsal-live-") as name:
        folder = Path(name)
        plan = write_plan(folder, trace, target, client)
        try:
            found = asyncio.run(play_plan(folder, plan, progress, show, timeout_s))
        finally:
            for index in range(plan.shards):
                repeat(results_of(folder, index) / LOG, f"load generator {index}", say)
    measurement = measurement_of(trace, target, found, floor, timing)
    measurement.cost["wall_s"] = time.perf_counter() - begun
    return judged(measurement, found.merged, target)


def point_trace(point: Point) -> Trace:
    """ValueError when it is not the one that the point was named after."""
    trace = make_trace(point.workload, point.workload_params, point.seed)
    if trace.header.hash != point.trace_hash:
        raise ValueError(
            f"the trace changed since the run began: {trace.header.hash}, not {point.trace_hash}"
        )
    return trace


def check_answers(target: TargetParams) -> None:
    """UserError when nobody listens there, before anything that takes time."""
    parts = urlsplit(target.url)
    port = parts.port or (443 if parts.scheme in ("wss", "https") else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=target.connect_timeout_s).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UserError(
            f"nothing can be reached at {target.url} ({why}); start the server, or correct the url."
        ) from None


def on_line(trace: Trace) -> int:
    """About the most sessions of an open loop that are on line at once; at least 1."""
    begins, ends = [], []
    for session in trace.sessions:
        begin_s = session.turns[0].arrival_s or 0.0
        lasts_s = sum(
            (turn.audio_s or 0.0)
            + (turn.think_s or 0.0)
            + (turn.reply_audio_s or TOKEN_S * turn.output_tokens)
            for turn in session.turns
        )
        begins.append(begin_s)
        ends.append(begin_s + lasts_s)
    at = np.sort(begins)
    return max(1, int(np.max(np.arange(1, at.size + 1) - np.searchsorted(np.sort(ends), at))))


@cache
def _floor_of(kind: str, sessions: int, shards: int, chunk_ms: int) -> dict[str, Any]:
    """Once for each load that this process puts on."""
    return asdict(measure_floor(kind, sessions, shards, FLOOR_S, {"chunk_ms": chunk_ms}))


def _floor(kind: str, sessions: int, target: TargetParams) -> dict[str, Any]:
    return _floor_of(kind, sessions, min(target.shards, sessions), target.chunk_ms)


def repeat(log: Path, who: str, say: Callable[[str], None]) -> None:
    """What a load generator printed, into the point's own log."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if text:
        say(f"{who}:\n{text}")


def measurement_of(
    trace: Trace, target: TargetParams, found: RunOutput, floor: dict[str, Any], timing: Any = None
) -> Measurement:
    """The numbers of a run, whether they are valid or not."""
    merged = found.merged
    turns, events = pd.DataFrame(trace.columns()), merged.events.to_pandas()
    if not speaks(target, merged):
        turns["reply_audio_s"] = np.nan
    steps = EventLog().steps()
    kind = kind_of(trace)
    timing = timing or kind.target_timing(trace)
    requests, summary = kind.measure(trace, turns, events, steps.to_pandas(), merged.run_end_s, timing)
    metrics = dict(summary) | summarise_live(
        events,
        kind.turn_rows(requests),
        merged.sends.to_pandas(),
        merged.failures.to_pandas(),
        floor,
        late_s=target.slip_limit_ms / 1e3,
        lost_sessions=len(merged.lost_sessions),
    )
    more = {"sends": merged.sends, "failures": merged.failures}
    if found.scrape is not None:
        more["scrape"] = found.scrape
    return Measurement(
        trace=trace,
        events=merged.events,
        steps=steps,
        requests=requests,
        metrics={name: asdict(metric) for name, metric in metrics.items()},
        counters={},
        proof={"shards": merged.shards},
        cost={"simulated_s": merged.run_end_s, "floor": floor},
        more=more,
    )


def speaks(target: TargetParams, merged: Merged) -> bool:
    """Whether its replies were to be spoken: vLLM's own server only writes, vLLM-Omni's speaks the same dialect."""
    dialects = {fact["dialect"] for fact in merged.shards if "dialect" in fact}
    if target.modalities == "text" or target.is_text:
        return False
    return dialects != {"vllm"} or "audio" in merged.events.column("kind").unique().to_pylist()


def judged(measurement: Measurement, merged: Merged, target: TargetParams) -> Measurement:
    """`measurement`, or InvalidPoint with it when the load was not the planned one."""
    reason = _why_invalid(measurement, merged, target)
    if reason is not None:
        raise InvalidPoint(reason, measurement)
    return measurement


def _why_invalid(measurement: Measurement, merged: Merged, target: TargetParams) -> str | None:
    if merged.lost:
        told = "; ".join(
            f"load generator {index} of {len(merged.shards)} {loss.reason} at {loss.t_s:.1f} s"
            for index, loss in sorted(merged.lost.items())
        )
        return f"{told}: {len(merged.lost_sessions)} sessions on line were lost, and count as failed"
    slip_s = measurement.metrics["send_slip_p99"]["value"]
    if slip_s is not None and 1e3 * slip_s > target.slip_limit_ms:
        return (
            f"the P99 of the send slip is {1e3 * slip_s:.1f} ms, above slip_limit_ms={target.slip_limit_ms:g}: the "
            "load generator was late, not the server; give it more --shards, a quieter machine or fewer sessions"
        )
    return None
