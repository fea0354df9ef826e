"""A record's timeline in the Trace Event Format, the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process for each group of GPUs that step together, a thread for each stage's replica there, its steps as slices, and
counters of its queues and its KV pool. Requests are asynchronous slices: at each stage with the phases queued,
prefill and decode, and of the user speaking, waiting, reading and listening. The file is written while the record is
read, piece by piece; only open slices are in memory.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from engines.deployments import Deployment
from harness.events.log import PIECE
from harness.records.record import Record
from reports.replays.placement import deployment_of, place

USERS = 1
"""Process of the users; processes of GPUs and others follow."""
THREADS = 1000
"""Threads are numbered from here, as one with the number of its process would be taken for its main thread."""
QUEUES = ("running", "waiting", "held")

Event = dict[str, Any]
Rows = Iterator[dict[str, Any]]
Key = tuple[str, int, int]
"""Key of an asynchronous slice: its subject (users, a stage, ...), session and turn."""


def write(record: Record, file: BinaryIO | GzipFile) -> int:
    """The number of events written for a record that has its tables."""
    point = record.point
    about = {"point": point.id, "engine": point.engine, "workload": point.workload, "seed": point.seed}
    head = {"displayTimeUnit": "ms", "otherData": about}
    file.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [')
    number = 0
    for event in events(record):
        file.write(b",\n" if number else b"\n")
        file.write(json.dumps(event, separators=(",", ":")).encode())
        number += 1
    file.write(b"\n]}\n")
    return number


def events(record: Record) -> Iterator[Event]:
    """The steps in the order in which they ended, then the requests in that of the log."""
    processes = Processes(deployment_of(record.point))
    yield from StepSlices(processes).events(rows_of(record.folder / "steps.parquet"))
    yield from RequestSlices(processes).events(rows_of(record.folder / "events.parquet"))


def rows_of(path: Path) -> Rows:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(PIECE):
            yield from pa.Table.from_batches([batch]).to_pylist()


def _ns(t_s: float) -> int:
    return round(t_s * 1e9)


def _us(t_ns: int) -> float:
    """Timestamps are microseconds; three decimals keep the nanosecond."""
    return t_ns / 1000


class Processes:
    """Numbers of processes and threads, and the events that name them, once each."""

    def __init__(self, deployment: Deployment | None) -> None:
        self._deployment = deployment
        self._pids: dict[str, int] = {"users": USERS}
        self._named: set[int] = set()
        self._threads: dict[tuple[int, str], int] = {}

    def of_replica(self, stage: str, replica: int) -> str:
        """The GPUs that a replica runs on, by name."""
        return place(self._deployment, stage, replica)

    def process(self, name: str) -> tuple[int, list[Event]]:
        """Its number, and what names it the first time."""
        pid = self._pids.setdefault(name, len(self._pids) + 1)
        if pid in self._named:
            return pid, []
        self._named.add(pid)
        order = {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        return pid, [_named("process_name", pid, 0, name), order]

    def thread(self, process: str, name: str) -> tuple[int, int, list[Event]]:
        """Numbers of process and thread, and what names them the first time."""
        pid, metadata = self.process(process)
        exists = (pid, name) in self._threads
        tid = self._threads.setdefault((pid, name), THREADS + len(self._threads))
        return pid, tid, metadata if exists else [*metadata, _named("thread_name", pid, tid, name)]


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


class StepSlices:
    """Makes slices on the threads of replicas, and counters when they change."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._free_ns: dict[tuple[str, int], list[int]] = {}
        self._counted: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def events(self, steps: Rows) -> Iterator[Event]:
        for step in steps:
            yield from self._slice(step)
            yield from self._counters(step)

    def _slice(self, step: dict[str, Any]) -> Iterator[Event]:
        if not step["requests"]:  # a moment in which requests left
            return
        stage, replica = step["stage"], step["replica"]
        begin, end = _ns(step["t_s"]), _ns(step["t_s"] + step["dt_s"])
        lane, begin = self._lane(stage, replica, begin, end)
        thread = f"{stage} {replica}" + (f" +{lane}" if lane else "")
        pid, tid, metadata = self._processes.thread(self._processes.of_replica(stage, replica), thread)
        yield from metadata
        prompt, decoded = step["prefill_tokens"], step["tokens"] - step["prefill_tokens"]
        name = "mixed" if prompt and decoded else "prefill" if prompt else "decode"
        args = {k: v for k, v in step.items() if k not in ("t_s", "dt_s", "stage", "replica") and _is_set(v)}
        yield {
            "ph": "X",
            "name": name,
            "cat": stage,
            "pid": pid,
            "tid": tid,
            "ts": _us(begin),
            "dur": _us(end - begin),
            "args": args,
        }

    def _lane(self, stage: str, replica: int, begin: int, end: int) -> tuple[int, int]:
        """A thread of the replica that is free, as slices of one may not cross, and when the step begins on it: times
        of steps that follow one another may differ in the last bits."""
        free = self._free_ns.setdefault((stage, replica), [])
        for lane, until in enumerate(free):
            if begin >= until - 1:
                free[lane] = max(end, until)
                return lane, min(max(begin, until), end)
        free.append(end)
        return len(free) - 1, begin

    def _counters(self, step: dict[str, Any]) -> Iterator[Event]:
        stage, replica = step["stage"], step["replica"]
        process = self._processes.of_replica(stage, replica)
        counters: dict[str, dict[str, Any]] = {f"{stage} {replica} requests": {name: step[name] for name in QUEUES}}
        if step["kv_blocks"]:
            counters[f"{stage} {replica} KV blocks"] = {"used": step["kv_used"]}
        for name, values in counters.items():
            if self._counted.get((process, stage, name)) == values:
                continue
            self._counted[process, stage, name] = values
            pid, metadata = self._processes.process(process)
            yield from metadata
            at = _us(_ns(step["t_s"] + step["dt_s"]))
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at, "args": values}


def _is_set(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


@dataclass
class _Track:
    """A slice that is open, the phase of it that is, and the latest time that was written of it."""

    at_ns: int
    phase: str = ""
    phase_ns: int = 0


AT_STAGE = {"arrive": "queued", "start": "prefill", "token": "decode"}
"""Events of a request at a stage, and the phase that begins with each."""
OF_USER = {"turn_start": "speak", "turn_end": "wait", "first_text": "read"}
"""The same of a turn at the client; of a typed one nothing is spoken."""
LOST = {"turn_failed", "turn_aborted", "turn_rejected"}
ENDS = {"finish", "abort", "turn_done", *LOST}
OF_USERS = ("session", "turn", "playback", "tick")
"""Subjects of asynchronous slices, other than requests at a stage. Slices of one name share their lanes in a viewer."""
INSTANTS = {"preempt", "barge_in", "barge_in_missed", *LOST, "shed", "session_failed"}
OF_FRAME = {"fed": "step", "frame_out": "return"}
"""The same of a frame of a call without pause, which begins with `turn_end`, and is over when its answer is there."""


class RequestSlices:
    """Convert the log, in order, to slices: sessions, turns and frames, requests at a stage, ticks."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._tracks: dict[Key, _Track] = {}
        self._done: dict[str, dict[int, int]] = {}
        self._end_ns = 0

    def events(self, log: Rows) -> Iterator[Event]:
        for row in log:
            now = _ns(row["t"])
            self._end_ns = max(self._end_ns, now)
            yield from self._event(row["kind"], row["session"], row["turn"], row["stage"], now, row["value"])
        for key in list(self._tracks):
            yield from self._close(key, self._end_ns)

    def _event(self, kind: str, session: int, turn: int, stage: str, now: int, value: float) -> Iterator[Event]:
        if kind in ("tick", "tick_end"):
            key = ("tick", -1, turn)
            yield from self._phase(key, "", now) if kind == "tick" else self._close(key, now)
        elif session < 0:
            return
        elif kind in ("session_start", "session_end"):
            key = ("session", session, -1)
            yield from self._phase(key, "", now) if kind == "session_start" else self._close(key, now)
            for over in [*self._done] if kind == "session_end" else ():  # frames without a waiting client
                yield from self._close_up_to(over, session, turn, now)
        elif kind in ("fed", "frame_out", "frame"):
            yield from self._of_frame(kind, stage, session, turn, now)
        else:
            yield from self._of_request(kind, (stage or "turn", session, turn), now)
        if kind in INSTANTS:
            yield from self._marked("n", (stage or "turn", session, turn), kind, now)
        if kind == "audio" and value > 0 and ("playback", session, turn) not in self._tracks:
            yield from self._phase(("playback", session, turn), "", now)
        elif kind in {"playback_done", "barge_in", "turn_done", *LOST}:
            yield from self._close(("playback", session, turn), now)

    def _of_request(self, kind: str, key: Key, now: int) -> Iterator[Event]:
        """Yield events of a turn, or of a request at a stage, which arrives once; its first token ends the prefill."""
        track = self._tracks.get(key)
        if kind in ENDS:
            yield from self._close(key, now)
        elif key[0] == "turn":
            if kind in OF_USER and (track or kind in ("turn_start", "turn_end")):
                yield from self._phase(key, OF_USER[kind], now)
        elif kind in AT_STAGE and (
            kind == "arrive" if track is None else kind != "arrive" and track.phase != AT_STAGE[kind]
        ):
            yield from self._phase(key, AT_STAGE[kind], now)

    def _of_frame(self, kind: str, stage: str, session: int, turn: int, now: int) -> Iterator[Event]:
        """A step returns, and the client is answered, for the newest frame that it was fed and all before."""
        if ("turn", session, turn) in self._tracks and kind != "frame":
            yield from self._phase(("turn", session, turn), OF_FRAME[kind], now)
        if kind != "fed":
            over = stage or "turn"
            yield from self._close_up_to(over, session, turn, now)

    def _close_up_to(self, over: str, session: int, turn: int, now: int) -> Iterator[Event]:
        """Close the open slices of a session's frames up to `turn`, the newest."""
        done = self._done.setdefault(over, {})
        for frame in range(done.get(session, -1) + 1, turn + 1):
            yield from self._close((over, session, frame), now)
        done[session] = max(done.get(session, -1), turn)

    def _phase(self, key: Key, phase: str, now: int) -> Iterator[Event]:
        """End the previous phase and begin this one; the first opens the slice around all phases."""
        if key not in self._tracks:
            self._tracks[key] = _Track(now)
            yield from self._mark("b", key, _title(key), now)
        else:
            yield from self._end_phase(key, now)
        track = self._tracks[key]
        track.phase, track.phase_ns = phase, max(now, track.at_ns)

    def _end_phase(self, key: Key, now: int) -> Iterator[Event]:
        """Written when its end is known: many phases take no time."""
        track = self._tracks[key]
        if track.phase and now > track.phase_ns:
            yield from self._mark("b", key, track.phase, track.phase_ns)
            yield from self._mark("e", key, track.phase, now)
        track.phase = ""

    def _close(self, key: Key, now: int) -> Iterator[Event]:
        if key in self._tracks:
            yield from self._end_phase(key, now)
            yield from self._mark("e", key, _title(key), now)
            del self._tracks[key]

    def _mark(self, ph: str, key: Key, name: str, now: int) -> Iterator[Event]:
        track = self._tracks[key]
        track.at_ns = max(track.at_ns, now)  # the log has what was due where it was noticed
        yield from self._marked(ph, key, name, track.at_ns)

    def _marked(self, ph: str, key: Key, name: str, at_ns: int) -> Iterator[Event]:
        of, session, turn = key
        pid, metadata = self._processes.process("users" if of in OF_USERS else f"requests at the {of}")
        yield from metadata
        event = {"ph": ph, "name": name, "id2": {"local": ".".join(map(str, key))}, "cat": of, "pid": pid, "tid": 0}
        ids = {"session": session, "turn": turn}
        args = {"args": {name: value for name, value in ids.items() if value >= 0}} if ph == "b" else {}
        yield {**event, "ts": _us(at_ns), **args}


def _title(key: Key) -> str:
    return key[0] if key[0] in OF_USERS else "request"
