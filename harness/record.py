"""A record: one directory per measured point, complete or absent.

A worker writes into `points/.tmp-<id>-<pid>`, flushes every file to disk and renames the directory to
`points/<id>`; so a directory of that name is a finished point, whatever happened to the process or the
machine. A point that failed is `points/<id>.failed`, with manifest, log and reason; it is tried again on the
next run. One that was measured and is INVALID keeps its tables and its summary beside the reason.

    manifest.json    what ran, on what, in which order, and the proof that the worker was fresh
    summary.json     metrics of the point: {name: {value, unit, n, missing}}, and the engine's counters
    trace.parquet    the workload as it was played      requests.parquet   one row per turn, or per frame
    events.parquet   the event log                      steps.parquet      one row per engine step
    log.txt          everything that the worker printed

The quality probes add outputs.parquet (what was said to each frame) and answers.parquet (to each question); live runs
sends.parquet (what was sent, when it was due and how late it went), failures.parquet and scrape.parquet.

Tables and summary hold nothing of the wall clock: the same point gives the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.experiment import SCHEMA_VERSION, Point
from workloads.errors import UserError
from workloads.trace import Trace

MANIFEST, SUMMARY, LOG, ERROR = "manifest.json", "summary.json", "log.txt", "error.txt"


@dataclass(frozen=True)
class Measurement:
    """What a worker measured at one point.

    `metrics` is {name: {value, unit, n, missing}}; `counters` are the engine's own; `proof` says that the
    engine was fresh; `cost` is what the run took (wall time and the share spent in vLLM), which differs from
    run to run and stays out of the summary.
    """

    trace: Trace
    events: pa.Table
    steps: pa.Table
    requests: pd.DataFrame
    metrics: dict[str, dict[str, Any]]
    counters: dict[str, int]
    proof: dict[str, Any]
    cost: dict[str, Any]
    more: dict[str, pa.Table] = field(default_factory=dict)
    """Further tables by name, where a run has any (`harness.quality`)."""


class InvalidPoint(RuntimeError):
    """The load generator did not do what the trace says, so the numbers are not the engine's.

    `measurement`: what was measured all the same, where it is worth keeping.
    """

    def __init__(self, reason: str, measurement: Measurement | None = None) -> None:
        super().__init__(reason)
        self.measurement = measurement


Work = Callable[[Point], Measurement]
"""Measures one point inside a worker."""


@dataclass(frozen=True)
class Record:
    """A record on disk. The tables are read when asked for."""

    folder: Path
    manifest: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    counters: dict[str, int]
    """What the engine counted; empty for a point that failed before it was measured, as are the metrics."""

    @property
    def point(self) -> Point:
        return Point.model_validate(self.manifest["point"])

    def trace(self) -> Trace:
        return Trace.load(self.folder / "trace.parquet")

    def table(self, name: str) -> pd.DataFrame:
        """`events`, `requests`, `steps`, and those that only some runs have."""
        return pd.read_parquet(self.folder / f"{name}.parquet")


def load_record(folder: Path) -> Record:
    """Read a finished or failed record; UserError if it is damaged or of a newer schema."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        version = manifest["schema_version"]
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{folder} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal."
            )
        measured = manifest["status"] == "ok" or (folder / SUMMARY).exists()
        results = json.loads((folder / SUMMARY).read_text()) if measured else {"metrics": {}, "counters": {}}
        metrics, counters = results["metrics"], results["counters"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{folder} is not a readable record; delete it and run again.") from None
    return Record(folder, manifest, metrics, counters)


def write_record(
    folder: Path,
    point: Point,
    measurement: Measurement,
    proof: dict[str, Any],
    environment: dict[str, Any],
    started: datetime,
) -> None:
    """Write every file of a finished record but the log into `folder`."""
    write_tables(folder, point, measurement)
    outcome = {"status": "ok", "proof": proof, "cost": measurement.cost}
    write_json(folder / MANIFEST, _manifest(point, environment, started, outcome))


def write_tables(folder: Path, point: Point, measurement: Measurement) -> None:
    """Write trace, tables and summary, which a finished record has and an INVALID one."""
    measurement.trace.save(folder / "trace.parquet")
    requests = pa.Table.from_pandas(measurement.requests, preserve_index=False)
    tables = {
        "events": measurement.events,
        "steps": measurement.steps,
        "requests": requests,
        **measurement.more,
    }
    for name, table in tables.items():
        pq.write_table(table.replace_schema_metadata(None), folder / f"{name}.parquet", compression="zstd")
    results = {"metrics": measurement.metrics, "counters": measurement.counters}
    write_json(folder / SUMMARY, {"schema_version": SCHEMA_VERSION, "point": point.id, **results})


def write_failure(
    folder: Path,
    point: Point,
    reason: str,
    environment: dict[str, Any],
    started: datetime,
    measurement: Measurement | None = None,
) -> None:
    """Complete what a failed worker left in `folder` (its log, perhaps nothing) to a failed record.

    `measurement`: what an INVALID point measured; it is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).touch()
    outcome: dict[str, Any] = {"status": "failed", "error": reason}
    if measurement is not None:
        write_tables(folder, point, measurement)
        outcome |= {"proof": measurement.proof, "cost": measurement.cost}
    (folder / ERROR).write_text(reason + "\n")
    write_json(folder / MANIFEST, _manifest(point, environment, started, outcome))


def is_failure(folder: Path) -> bool:
    """Whether a worker has completed its failed record itself."""
    return (folder / ERROR).exists() and (folder / MANIFEST).exists()


def publish(folder: Path, target: Path) -> None:
    """Flush `folder` to disk and rename it to `target`; a record that already stands there wins."""
    for path in folder.iterdir():
        _flush(path)
    _flush(folder)
    try:
        folder.rename(target)
    except OSError:
        if not (target / MANIFEST).exists():
            raise
        shutil.rmtree(folder)
    _flush(target.parent)


def temporary(points_dir: Path, point_id: str, pid: int) -> Path:
    return points_dir / f".tmp-{point_id}-{pid}"


def failed(points_dir: Path, point_id: str) -> Path:
    return points_dir / f"{point_id}.failed"


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON, the same bytes for the same data; ValueError for NaN, which is no result."""
    path.write_text(json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n")


def _manifest(
    point: Point, environment: dict[str, Any], started: datetime, outcome: dict[str, Any]
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "id": point.id,
        "point": point.model_dump(mode="json"),
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **environment,
        **outcome,
    }


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
