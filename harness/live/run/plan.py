"""The plan of one run's load generators, written before any of them starts, and what they left, in one log.

Nothing is drawn later than the plan.

PLAN/plan.json           target, client parameters of each shard, hash of the whole trace
PLAN/shard-I.parquet     the sessions of shard I, as `workloads.transforms.shard` deals them out
PLAN/shard-I/            output of that shard, see `harness.live.run.load_generator`

The start of the run is not in it: processes get it once they are ready, as an instant of CLOCK_MONOTONIC.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import ipc
from pydantic import BaseModel, ConfigDict

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.live.endpoints.target import TargetParams
from workloads.errors import UserError, validate
from workloads.generators.content import recordings
from workloads.generators.conversations import NAME as CONVERSATIONS
from workloads.registry import serves
from workloads.trace import Trace
from workloads.transforms.shard import shard

PLAN = "plan.json"
RECORDINGS = "recordings"


class Plan(BaseModel):
    """One run, dealt out. `clients` has one entry for each shard: the sums of their `c` and `most` are the run's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: TargetParams
    clients: tuple[ClientParams, ...]
    kind: str
    """Name of the kind of its users (`harness.kinds`)."""
    trace_hash: str
    slower: float = 1.0
    """Real seconds in a second of the run: its users' speech, pauses and limits."""

    @property
    def shards(self) -> int:
        return len(self.clients)


def write_plan(folder: Path, trace: Trace, target: TargetParams, client: ClientParams, slower: float = 1.0) -> Plan:
    """Deal `trace` and the `c` or `most` of its loop out to `target.shards` processes; write into `folder`.

    A process without a session, or with c = 0, would do nothing, so there may be fewer.
    """
    parts = shard(trace, min(target.shards, client.c or client.most or target.shards))
    counts, most = (split_concurrency(limit, len(parts)) for limit in (client.c, client.most))
    clients = tuple(client.model_copy(update={"c": c, "most": n}) for c, n in zip(counts, most, strict=True))
    plan = Plan(target=target, clients=clients, kind=serves(trace), trace_hash=trace.header.hash, slower=slower)
    folder.mkdir(parents=True, exist_ok=True)
    for index, part in enumerate(parts):
        part.save(trace_of(folder, index))
    (folder / PLAN).write_text(plan.model_dump_json(indent=1) + "\n")
    return plan


def read_plan(folder: Path) -> Plan:
    """Read a plan. UserError where there is none."""
    try:
        data = json.loads((folder / PLAN).read_text())
    except (OSError, json.JSONDecodeError):
        raise UserError(f"{folder} holds no readable {PLAN}; give the folder of a plan.") from None
    return validate(Plan, data, str(folder / PLAN))


def trace_of(folder: Path, index: int) -> Path:
    """Return the file of a shard's sessions."""
    return folder / f"shard-{index}.parquet"


def shard_trace(folder: Path, index: int) -> Trace:
    """Return the sessions of one shard, with their numbers in the whole trace."""
    return Trace.load(trace_of(folder, index))


def results_of(folder: Path, index: int) -> Path:
    """Return the folder that a shard writes to."""
    return folder / f"shard-{index}"


def split_concurrency(c: int | None, shards: int) -> list[int | None]:
    """Return `c` as a sum of whole numbers, one a shard, as even as possible; None: an open loop."""
    if c is None:
        return [None] * shards
    return [c // shards + (index < c % shards) for index in range(shards)]


def recordings_of(trace: Trace) -> dict[str, bytes]:
    """Return the recordings of `trace`, or the file with its texts, by name; none where speech is synthesised."""
    files = recordings(trace)
    if trace.header.generator == CONVERSATIONS:
        path = Path(trace.header.params["path"])
        files = {path.name: path}
    return {name: path.read_bytes() for name, path in files.items()}


def pack_shard(folder: Path, index: int, recorded: dict[str, bytes]) -> dict[str, Any]:
    """Return shard `index` of the plan in `folder` as one message, for a host that shares no disk with this one."""
    return {
        "index": index,
        "plan": (folder / PLAN).read_text(),
        "trace": trace_of(folder, index).read_bytes(),
        "recordings": recorded,
    }


def unpack_shard(folder: Path, data: dict[str, Any]) -> None:
    """Write the plan with this one shard to `folder`, as a load generator reads it, with its recordings."""
    index = data["index"]
    results_of(folder, index).mkdir(parents=True)
    (folder / PLAN).write_text(data["plan"])
    path = trace_of(folder, index)
    path.write_bytes(data["trace"])
    if not data["recordings"]:
        return
    for name, sound in data["recordings"].items():
        recording = folder / RECORDINGS / name
        recording.parent.mkdir(parents=True, exist_ok=True)
        recording.write_bytes(sound)
    trace = Trace.load(path)
    header = trace.header
    place = folder / RECORDINGS
    if header.generator == CONVERSATIONS:
        place /= next(iter(data["recordings"]))
    Trace.from_columns(
        trace.columns(),
        generator=header.generator,
        params={**header.params, "path": str(place)},
        seed=header.seed,
        streams=header.streams,
        notes=header.notes,
    ).save(path)


DONE = "done.json"

SENDS = pa.schema(
    [("kind", pa.string()), ("session", pa.int32()), ("due_s", pa.float64()), ("send_delay_s", pa.float64())]
)
FAILURES = pa.schema([("t_s", pa.float64()), ("session", pa.int32()), ("turn", pa.int32()), ("reason", pa.string())])


@dataclass(frozen=True)
class Loss:
    """The time (s of the run) and reason of a shard's early end."""

    t_s: float
    reason: str


@dataclass(frozen=True)
class Merged:
    """The merged tables of one run: `events` as `harness.events.log`, by time; `sends` and `failures` as SENDS and
    FAILURES."""

    events: pa.Table
    sends: pa.Table
    failures: pa.Table
    run_end_s: float
    shards: list[dict[str, Any]]
    """Each shard's done.json, or {"lost": reason, "t_s": when, "sessions": sessions then under way}."""
    lost: dict[int, Loss] = field(default_factory=dict)
    lost_sessions: tuple[int, ...] = ()
    """Sessions that were connected when their shard was lost."""


def merge(folder: Path, lost: Mapping[int, Loss] | None = None) -> Merged:
    """Merge the tables of all shards of the plan in `folder`.

    `lost`: shards known to have ended early. A shard without done.json is lost too, at the last time in its tables. A
    lost shard changes no other shard's rows. In each of its connected sessions, the running turn fails with the reason;
    if no turn runs, the next one fails.
    """
    plan, lost = read_plan(folder), dict(lost or {})
    events, sends, failures, facts = [], [], [], []
    lost_sessions: list[int] = []
    for index in range(plan.shards):
        results = results_of(folder, index)
        log = read_arrow_stream(results / f"events{SUFFIX}")
        log = empty_events() if log is None else log
        events.append(log)
        sends.append(_table(results / f"sends{SUFFIX}", SENDS))
        failures.append(_table(results / f"failures{SUFFIX}", FAILURES))
        done = results / DONE
        if done.exists() and index not in lost:
            facts.append(json.loads(done.read_text()))
            continue
        ends_s = float(np.max(np.asarray(log["t"]), initial=0.0))
        loss = lost.setdefault(index, Loss(ends_s, "left no end"))
        ends, failed, sessions = _end_of(log.to_pandas(), shard_trace(folder, index), index, loss)
        events.append(ends)
        failures.append(failed)
        lost_sessions += sessions
        facts.append({"lost": loss.reason, "t_s": loss.t_s, "sessions": len(sessions)})
    whole = _in_time(events, "t")
    run_end_s = max(
        [fact.get("end_s", fact.get("t_s", 0.0)) for fact in facts] + [float(np.max(whole["t"], initial=0.0))]
    )
    end = _rows([(run_end_s, "run_end", -1, -1)])
    return Merged(
        pa.concat_tables([whole, end]),
        _in_time(sends, "due_s"),
        _in_time(failures, "t_s"),
        run_end_s,
        facts,
        lost,
        tuple(sorted(lost_sessions)),
    )


def _end_of(log: pd.DataFrame, trace: Trace, index: int, loss: Loss) -> tuple[pa.Table, pa.Table, list[int]]:
    """Return the rows that end the sessions of a lost shard, for the log and for the failures, and these sessions."""
    at_s = max(loss.t_s, float(np.max(log["t"].to_numpy(), initial=0.0)))
    reason = f"lost: shard {index} {loss.reason}"
    rows: list[tuple[float, str, int, int]] = []
    failures = []
    kinds: dict[tuple[int, int], set[str]] = {}
    on_line: set[int] = set()
    for session, turn, kind in zip(*(log[name].tolist() for name in ("session", "turn", "kind")), strict=True):
        kinds.setdefault((session, turn), set()).add(kind)
        if kind in ("session_start", "session_end"):
            (on_line.add if kind == "session_start" else on_line.discard)(session)
    for session in trace.sessions:
        if session.id not in on_line:
            continue
        planned = [turn.turn for turn in session.turns]
        turn_kinds = {turn: kinds.get((session.id, turn), set()) for turn in planned}
        owed = next((turn for turn in planned if not turn_kinds[turn] & {"turn_done", "turn_failed"}), None)
        if owed is not None:
            rows += [
                (at_s, kind, session.id, owed) for kind in ("turn_start", "turn_end") if kind not in turn_kinds[owed]
            ]
            rows.append((at_s, "turn_failed", session.id, owed))
            failures.append((at_s, session.id, owed, reason))
        rows.append((at_s, "session_end", session.id, planned[-1]))
    table = pa.table({name: [row[i] for row in failures] for i, name in enumerate(FAILURES.names)}, schema=FAILURES)
    return _rows(rows), table, sorted(on_line)


def _rows(rows: Sequence[tuple[float, str, int, int]]) -> pa.Table:
    t, kind, session, turn = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [t, kind, session, turn, [""] * len(rows), [nan] * len(rows)]
    schema = empty_events().schema
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _table(path: Path, schema: pa.Schema) -> pa.Table:
    table = read_arrow_stream(path)
    return schema.empty_table() if table is None else table.select(schema.names).cast(schema)


def _in_time(tables: Sequence[pa.Table], column: str) -> pa.Table:
    """Return one table by time. Simultaneous rows keep the order of the shards and of each one's log."""
    whole = pa.concat_tables(tables)
    return whole.take(pa.array(np.argsort(np.asarray(whole[column]), kind="stable")))


SUFFIX = ".arrows"


class ArrowStream:
    """Appends tables of one schema to `path` while a process measures, so that killing it loses only the last piece.

    Unlike Parquet, the stream is readable before it is closed: the kernel has each table when `append` returns.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer: ipc.RecordBatchStreamWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Append a table. The first piece may be empty: it carries the schema."""
        if self._writer is None:
            self._writer = ipc.new_stream(self._file, table.schema)
        if table.num_rows:
            self._writer.write_table(table)
        self._file.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()


def read_arrow_stream(path: Path) -> pa.Table | None:
    """Return all whole pieces, whether the writer closed the file or was killed; None without a schema."""
    if not path.exists():
        return None
    pieces: list[pa.RecordBatch] = []
    try:
        with ipc.open_stream(path) as reader:
            for piece in reader:
                pieces.append(piece)
            schema = reader.schema
    except (pa.ArrowInvalid, OSError):
        if not pieces:
            return None
        schema = pieces[0].schema
    return _plain(pa.Table.from_batches(pieces, schema))


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with plain strings: dictionaries grow from piece to piece."""
    for i, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.string()))
    return table


def empty_events() -> pa.Table:
    """Return an event table without a row, for a process that died before its first piece."""
    return _plain(EventLog().events())


def command(folder: Path, index: int) -> list[str]:
    """Return the command line of the load generator that plays a shard of the plan in `folder`."""
    return [sys.executable, "-P", "-m", "harness.live.run.load_generator", str(folder.resolve()), str(index)]
