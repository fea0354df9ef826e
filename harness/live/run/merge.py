"""From what the shards of one run left to one event log, one table of sends and one of failures.

A shard that was lost takes nothing from the others. Its own sessions that were on line count as failed: the turn under
way of each, or else its next one, with the reason. What it saw in its last `shard.FLUSH_S` is gone with it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import ipc

from harness.events.log import EventLog
from harness.live.run.plan import read_plan, results_of, shard_trace
from workloads.trace import Trace

DONE = "done.json"

SENDS = pa.schema(
    [("kind", pa.string()), ("session", pa.int32()), ("due_s", pa.float64()), ("send_delay_s", pa.float64())]
)
FAILURES = pa.schema(
    [("t_s", pa.float64()), ("session", pa.int32()), ("turn", pa.int32()), ("reason", pa.string())]
)


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
    """On line when their shard was lost."""


def merge(folder: Path, lost: Mapping[int, Loss] | None = None) -> Merged:
    """Merge the output of all shards of the plan in `folder`. `lost`: shards known to have ended early; a shard without
    done.json is one as well, from the end of its tables."""
    plan, lost = read_plan(folder), dict(lost or {})
    events, sends, failures, facts = [], [], [], []
    lost_sessions: list[int] = []
    for index in range(plan.shards):
        own = results_of(folder, index)
        log = read_arrow_stream(own / f"events{SUFFIX}")
        log = empty_events() if log is None else log
        events.append(log)
        sends.append(_table(own / f"sends{SUFFIX}", SENDS))
        failures.append(_table(own / f"failures{SUFFIX}", FAILURES))
        done = own / DONE
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
    for session, turn, kind in zip(
        *(log[name].tolist() for name in ("session", "turn", "kind")), strict=True
    ):
        kinds.setdefault((session, turn), set()).add(kind)
        if kind in ("session_start", "session_end"):
            (on_line.add if kind == "session_start" else on_line.discard)(session)
    for session in trace.sessions:
        if session.id not in on_line:
            continue
        planned = [turn.turn for turn in session.turns]
        said = {turn: kinds.get((session.id, turn), set()) for turn in planned}
        owed = next((turn for turn in planned if not said[turn] & {"turn_done", "turn_failed"}), None)
        if owed is not None:
            rows += [
                (at_s, kind, session.id, owed)
                for kind in ("turn_start", "turn_end")
                if kind not in said[owed]
            ]
            rows.append((at_s, "turn_failed", session.id, owed))
            failures.append((at_s, session.id, owed, reason))
        rows.append((at_s, "session_end", session.id, planned[-1]))
    table = pa.table(
        {name: [row[i] for row in failures] for i, name in enumerate(FAILURES.names)}, schema=FAILURES
    )
    return _rows(rows), table, sorted(on_line)


def _rows(rows: Sequence[tuple[float, str, int, int]]) -> pa.Table:
    t, kind, session, turn = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [t, kind, session, turn, [""] * len(rows), [nan] * len(rows)]
    schema = empty_events().schema
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _table(path: Path, schema: pa.Schema) -> pa.Table:
    found = read_arrow_stream(path)
    return schema.empty_table() if found is None else found.select(schema.names).cast(schema)


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
