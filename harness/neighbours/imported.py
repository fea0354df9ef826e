"""Another load generator's file as a results directory of ours: every request a session of one typed turn.

The tool's own times become the event log that a run of ours would have left, so that every metric, picture and
comparison is made by the code that makes them for runs of ours. What such a file does not hold stays missing: how late
the tool sent, and each single token; those of a reply are laid evenly between its first and its last.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engines.registry import ENDPOINT
from harness.experiments.experiment import Experiment, Point, expand
from harness.live.client.failure_log import FailureLog
from harness.live.client.send_log import SendLog
from harness.live.run.executor import LiveExecutor
from harness.live.run.launch import RunOutput
from harness.live.run.measure import measurement_of
from harness.live.run.merge import Merged
from harness.live.target import TargetParams
from harness.metrics.live_window import WHOLE
from harness.metrics.stages import ENTRY
from harness.neighbours import aiperf, guidellm
from harness.neighbours.requests import Answered, Load
from harness.records.log import EventLog
from harness.records.record import Measurement
from harness.records.results import claim, ids, unfinished, write_summary
from workloads.atomic_file import cannot_write
from workloads.errors import UserError, existing_file, validate
from workloads.registry import make_trace
from workloads.trace import Trace

SUFFIX = ".rehearsal"
"""The directory beside a file is its name with this; it has results and the requests as traces."""
UNKNOWN = "http://unknown.invalid/v1"
"""Of a server whose address the file does not hold. [config: RFC 2606]"""


def results_of(path: Path) -> Path:
    """`path` where it is a directory; of a file of guidellm or aiperf the results directory beside it, made anew where
    it does not stand yet. UserError for a file of another kind, or without requests."""
    if not path.is_file():
        return path
    tool, loads = _read(existing_file(path))
    made = path.with_name(path.name + SUFFIX)
    folder, kept = made / "results", made / "traces"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        traces = [_saved(load, kept) for load in loads]
    except OSError as error:
        raise cannot_write(made, error) from None
    experiment = _experiment(tool, path, loads, traces)
    points = expand(experiment)
    by_trace = {str(trace): load for trace, load in zip(traces, loads, strict=True)}
    with claim(folder, experiment) as points_dir:
        executor = LiveExecutor(
            points_dir,
            timeout_s=60.0,
            measure=lambda point, *_: _measured(point, by_trace[str(point.workload_params["path"])]),
        )
        for outcome in executor.run(unfinished(points_dir, points)):
            if outcome.status == "failed":
                raise UserError(f"{path} cannot be read as results: {outcome.reason}.")
        write_summary(folder, ids(folder, points))
    return folder


def _read(path: Path) -> tuple[str, list[Load]]:
    if path.name == aiperf.SUMMARY:
        path = path.with_name(aiperf.RECORDS)
        if not path.is_file():
            raise UserError(
                f"{path} does not exist, and {aiperf.SUMMARY} holds statistics only; let aiperf export its records "
                "beside it."
            )
    tool = "aiperf" if path.suffix == ".jsonl" else "guidellm"
    loads = [aiperf.read_load(path)] if tool == "aiperf" else guidellm.read_loads(path)
    for load in loads:
        if not any(not one.failed for one in load.requests):
            raise UserError(f"{path}, {load.label}: no request was answered; give a run with answers.")
    return tool, loads


def _saved(load: Load, folder: Path) -> Path:
    trace = trace_of(load)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", load.label).strip("-") or "all"
    path = folder / f"{name}.parquet"
    trace.save(path)
    return path.resolve()


def _experiment(tool: str, path: Path, loads: Sequence[Load], traces: Sequence[Path]) -> Experiment:
    url = next((load.url for load in loads if load.url.startswith("http")), UNKNOWN)
    paths = [str(trace) for trace in traces]
    data = {
        "name": tool,
        "title": f"{path.name}, measured by {tool}",
        "engines": [ENDPOINT],
        "workload": "file",
        "device": "live",
        "set": {"url": url, **({"path": paths[0]} if len(paths) == 1 else {})},
        "grid": {"path": paths} if len(paths) > 1 else {},
        "seeds": 1,
    }
    return validate(Experiment, data, tool)


def trace_of(load: Load) -> Trace:
    """Each session's requests in order, the first at its time since the first of all."""
    origin_s = min(one.due_s for one in load.requests)
    ordered = _ordered(load)
    return Trace.from_columns(
        {
            "session": [session for session, _, _ in ordered],
            "turn": [turn for _, turn, _ in ordered],
            "arrival_s": [one.due_s - origin_s for _, _, one in ordered],
            "modality": "text",
            "input_tokens": [max(1, one.prompt_tokens) for _, _, one in ordered],
            "output_tokens": [max(1, one.output_tokens or 1) for _, _, one in ordered],
            "network_s": 0.0,
        },
        generator="imported",
    )


def _ordered(load: Load) -> list[tuple[int, int, Answered]]:
    """Session, turn and request, by session and time; sessions numbered by their first request."""
    by_time = sorted(load.requests, key=lambda one: one.due_s)
    numbers = {name: index for index, name in enumerate(dict.fromkeys(one.session for one in by_time))}
    turns: dict[int, int] = {}
    rows = []
    for one in by_time:
        session = numbers[one.session]
        rows.append((session, turns.setdefault(session, 0), one))
        turns[session] += 1
    return sorted(rows, key=lambda row: row[:2])


def _measured(point: Point, load: Load) -> Measurement:
    trace = make_trace(point.workload, point.workload_params, point.seed)
    log, failures = EventLog(), FailureLog()
    origin_s = min(one.due_s for one in load.requests)
    events: list[tuple[float, str, int, int, str, float]] = []
    ordered = _ordered(load)
    last = {session: turn for session, turn, _ in ordered}
    for session, turn, one in ordered:
        events += _events(session, turn, one, origin_s)
        if turn == last[session]:
            events.append((events[-1][0], "session_end", session, turn, "", float("nan")))
        if one.failed:
            end_s = one.due_s if one.end_s is None else one.end_s
            failures.add(end_s - origin_s, session, turn, one.failed)
    for t, kind, session, turn, stage, value in sorted(events, key=lambda event: event[0]):
        log.event(t, kind, session, turn, stage, value)
    end_s = max(event[0] for event in events)
    merged = Merged(log.events(), SendLog().table(), failures.table(), end_s, [{"dialect": "text"}])
    target = TargetParams.model_validate(point.server_params)
    measurement = measurement_of(trace, target, RunOutput(merged, None), {}, WHOLE)
    measurement.cost["wall_s"] = end_s  # the tool's own run
    return measurement


def _events(
    session: int, turn: int, one: Answered, origin_s: float
) -> list[tuple[float, str, int, int, str, float]]:
    """As `harness.client.session` writes them."""
    nan, due_s = float("nan"), one.due_s - origin_s
    found = [(due_s, "session_start", "", nan)] if turn == 0 else []
    found += [(due_s, "turn_start", "", nan), (due_s, "turn_end", "", nan)]
    end_s = due_s if one.end_s is None else one.end_s - origin_s
    if one.failed:
        found.append((end_s, "turn_failed", "", nan))
    else:
        tokens = one.output_tokens or 1
        first_s = end_s if one.ttft_s is None else due_s + one.ttft_s
        if one.ttft_s is not None:
            times = np.linspace(first_s, max(first_s, end_s), tokens)
            found += [(float(t), "text" if k else "first_text", "", 1.0) for k, t in enumerate(times)]
        end_s = max(first_s, end_s)
        found += [
            (end_s, "finish", ENTRY, float(tokens)),
            (end_s, "reply_done", "", nan),
            (end_s, "turn_done", "", nan),
        ]
    return [(t, kind, session, turn, stage, value) for t, kind, stage, value in found]
