"""One live run: floor, load generators, what they left, and its numbers as an ordinary measurement."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from harness.clocks.ctrl_c import run_until_ctrl_c
from harness.events.log import EventLog
from harness.live.endpoints.target import TargetParams
from harness.live.kinds.kind import LiveKind
from harness.live.point import LivePoint
from harness.live.run.floor import measure_floor
from harness.live.run.forecast import coming, expected_phases, on_line, phases_of
from harness.live.run.judged_turns import JudgedTurns
from harness.live.run.launch import RunOutput, Show, play_plan
from harness.live.run.plan import Merged, results_of, write_plan
from harness.live.run.preflight import preflight
from harness.live.run.run_progress import RunProgress
from harness.live.validity import check_machines, check_server, check_window
from harness.records.measured import LiveFacts, RunFacts, metrics_of, planned_turns, window_of
from harness.records.record import LOG, Measurement
from harness.records.saved_calls import CALL, session_of
from harness.request_tables.wait_parts import with_parts
from workloads.trace import Trace

FLOOR_S = 4.0
"""[chosen] Seconds of the run against the null server."""


def measure_live(
    point: LivePoint, show: Show | None = None, timeout_s: float = 900, say: Callable[[str], None] = print
) -> Measurement:
    """Measure a point of device live, whose server parameters are a `TargetParams`. UserError and GeneratorFailed when
    it could not begin. InvalidPoint and FailedPoint, with all measured values, as `harness.live.verdict` says. `say`
    gets the output of the generators."""
    trace = point.trace()
    kind, tell = point.setup.kind, show or (lambda progress: None)

    def waits(waited_s: float) -> None:
        tell(RunProgress(0, point.label, stage="the server loads", t_s=waited_s))

    tell(RunProgress(0, point.label, stage=f"asking {point.setup.target.url} what it speaks"))
    target = preflight(
        point.setup.target,
        lambda target: kind.spoken(target, trace),
        "frames" if kind.name == "frames" else "turns",
        waits,
    )
    return check(kind, measure_target(point, target, show, timeout_s, say=say))


def check(kind: LiveKind, measurement: Measurement) -> Measurement:
    """Return the measurement, unless the server failed or no turn counts: FailedPoint or InvalidPoint."""
    check_server(kind, measurement)
    check_window(measurement)
    return measurement


def measure_target(
    point: LivePoint,
    target: TargetParams,
    show: Show | None = None,
    timeout_s: float = 900,
    *,
    timing: Any = None,
    slower: float = 1.0,
    say: Callable[[str], None] = print,
) -> Measurement:
    """Play the point's users against `target`; otherwise as `measure_live`, whatever the server answers. `timing`:
    facts that the metrics need about the server (`harness.kinds`), where known. `slower`: real seconds in one of the
    users', which everything but `timeout_s` and the cost is in; the server's clock is as slow."""
    begun = time.perf_counter()
    trace, client, kind = point.trace(), point.setup.client, point.setup.kind
    expected = expected_phases(trace, client)
    progress = RunProgress(
        client.c or coming(trace, client),
        point.label,
        kind.first_answer(target, trace),
        expected,
        open_loop=client.c is None,
    )
    if target.stop_after_turns is not None:
        places = None if client.c is None else min(client.c, len(trace.sessions))
        progress.judged = JudgedTurns(target.stop_after_turns, min(target.shards, places or target.shards), places)
    tell = show or (lambda progress: None)
    tell(progress)
    sessions = client.c or on_line(trace)
    floor = cached_floor(kind.floor(target), sessions, min(target.shards, sessions), target.chunk_ms)
    floor_s = time.perf_counter() - begun
    progress.stage = "start"
    tell(progress)
    with tempfile.TemporaryDirectory(prefix="rehearsal-live-") as name:
        folder = Path(name)
        plan = write_plan(folder, trace, target, client, slower)
        try:
            output = run_until_ctrl_c(play_plan(folder, plan, progress, show, timeout_s))
            calls = saved_calls([results_of(folder, index) for index in range(plan.shards)], target)
        finally:
            for index in range(plan.shards):
                repeat(results_of(folder, index) / LOG, f"load generator {index}", say)
    merged = output.merged
    turns = target.stop_after_turns
    timing = timing or kind.target_timing(trace, client, turns)
    measurement = measurement_of(kind, trace, target, output, floor, timing)
    measurement.files.update(calls)
    window = window_of(measurement.facts, measurement.requests, planned_turns(trace, measurement.facts))
    wall_s = time.perf_counter() - begun
    progress.taken = phases_of(window, floor_s, merged.run_end_s, wall_s)
    tell(progress)
    measurement.cost.update(wall_s=wall_s, phases=asdict(progress.taken))
    check_machines(measurement, merged, target)
    return measurement


@cache
def cached_floor(kind: str, sessions: int, shards: int, chunk_ms: int) -> dict[str, Any]:
    """Return the floor, measured once for each load of this process."""
    return asdict(measure_floor(kind, sessions, shards, FLOOR_S, {"chunk_ms": chunk_ms}))


def repeat(log: Path, who: str, say: Callable[[str], None]) -> None:
    """Copy the output of a load generator into the point's own log."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if text:
        say(f"{who}:\n{text}")


def saved_calls(folders: list[Path], target: TargetParams) -> dict[str, bytes]:
    """Return the sound of the first calls, by the names of their files. Each load generator has kept its own first
    ones."""
    paths = sorted((path for folder in folders for path in folder.glob(f"{CALL}*.flac")), key=session_of)
    return {path.name: path.read_bytes() for path in paths[: target.save_audio or 0]}


def measurement_of(
    kind: LiveKind, trace: Trace, target: TargetParams, output: RunOutput, floor: dict[str, Any], timing: Any
) -> Measurement:
    """Return the numbers of a run, valid or not."""
    merged = output.merged
    live = LiveFacts(target.send_delay_limit_ms / 1e3, floor, len(merged.lost_sessions), speaks(target, merged))
    facts = RunFacts(merged.run_end_s, timing, live=live)
    turns, events = planned_turns(trace, facts), merged.events.to_pandas()
    steps = EventLog().steps()
    requests = kind.requests(turns, events, timing)
    if kind.turn_rows(requests) is not None:
        requests = with_parts(requests, events)
    more = {"sends": merged.sends, "failures": merged.failures}
    if output.scrape is not None:
        more["scrape"] = output.scrape
    read = {name: table.to_pandas() for name, table in more.items()}
    metrics = metrics_of(kind, facts, turns, events, steps.to_pandas(), requests, read, trace)
    return Measurement(
        trace=trace,
        events=merged.events,
        steps=steps,
        requests=requests,
        metrics={name: metric.as_dict() for name, metric in metrics.items()},
        facts=facts,
        proof={"shards": merged.shards, "origin_s": output.origin_s},
        cost={"simulated_s": merged.run_end_s, "floor": floor},
        more=more,
    )


def speaks(target: TargetParams, merged: Merged) -> bool:
    """Return whether its replies are spoken: vLLM's own server only writes, vLLM-Omni's speaks the same dialect."""
    dialects = {fact["dialect"] for fact in merged.shards if "dialect" in fact}
    if target.modalities == "text" or target.is_text:
        return False
    return dialects != {"vllm"} or "audio" in merged.events.column("kind").unique().to_pylist()
