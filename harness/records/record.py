"""A record: one directory per measured point, complete or absent.

A worker writes into `points/.tmp-<id>-<pid>`, flushes every file to disk and renames the directory to
`points/<id>`; so a directory of that name is a finished point, whatever happened to the process or the
machine. A point that failed is `points/<id>.failed`, with manifest, log and reason; it is tried again on the
next run. One that was measured and is INVALID keeps its tables next to the reason.

    manifest.json    what ran, on what, in which order, and the proof that the worker was fresh
    run.json         facts of the run that no table has: its end, the engine's counters
    trace.parquet    the workload as it was played      requests.parquet   one row per turn, or per frame
    events.parquet   the event log                      steps.parquet      one row per engine step
    log.txt          everything that the worker printed

No file states a metric: readers make them from the tables (`harness.records.measured`). So a changed metric needs no
replay, and an edited number breaks a hash.

The manifest has the size and the SHA-256 of every other file but the log, and whoever opens a record compares them; its
point has the id that the record is named after, and each of its files is among those listed.

The quality probes add outputs.parquet (what was said to each frame) and answers.parquet (to each question); live runs
sends.parquet (what was sent, when it was due and how late it went), failures.parquet and scrape.parquet.

Tables and run.json hold nothing of the wall clock: the same point gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from harness.events.log import COMPRESSION
from harness.exit_status import FAIL, OK, UNDECIDED
from harness.experiments.experiment import SCHEMA_VERSION, check_schema
from harness.experiments.identity import metrics_hash
from harness.experiments.point import Point, id_of
from harness.metrics.metric import Metric, another_percentile
from harness.metrics.metric_name import parsed
from harness.metrics.vocabulary import KNOWN
from harness.records import metrics_cache
from harness.records.manifest import Manifest, Run, Sums
from harness.records.measured import RunFacts, facts_of, metrics_of, planned_turns
from workloads.atomic_file import TEMPORARY, replacing
from workloads.errors import Model, UserError, printable
from workloads.files.packed import NO_PARQUET
from workloads.trace import Trace

MANIFEST, RUN, LOG, ERROR = "manifest.json", "run.json", "log.txt", "error.txt"
TRACE, TABLES = "trace.parquet", ("events", "steps", "requests")
READ_BY_METRICS = ("sends", "failures", "scrape", "outputs", "answers")
"""Tables that only some records have, and their metrics are made from."""
_SUFFIXES = (".parquet", ".json", ".flac")
"""Suffixes of the files of a record other than its log and its reason."""
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Measurement:
    """A worker's measurement of one point.

    `metrics` is {name: {value, unit, n, missing}}; `proof` says that the engine was fresh; `cost` is the cost of the
    run (wall time and the share spent in vLLM), which differs from run to run. A table that is a path is in the
    record's folder already.
    """

    trace: Trace
    events: pa.Table | Path
    steps: pa.Table | Path
    requests: pd.DataFrame
    metrics: dict[str, dict[str, Any]]
    facts: RunFacts
    proof: dict[str, Any]
    cost: dict[str, Any]
    more: dict[str, pa.Table] = field(default_factory=dict)
    """Further tables by name, where a run has any (`harness.metrics.quality`)."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Further files by name: sound (`harness.live.endpoints.call_recorder`)."""


INFINITE = "inf"
INVALID = "INVALID"
"""Begin of the reason where the machine, not the engine, determined the result."""


def status_of(failures: Sequence[str]) -> int:
    """Return the exit status of a run, by the reasons of its failed points: UNDECIDED where all of them are INVALID."""
    if not failures:
        return OK
    return UNDECIDED if all(reason.startswith(INVALID) for reason in failures) else FAIL


class InvalidPoint(RuntimeError):
    """A point whose load generator did not do what the trace says, so the numbers are not the engine's.

    `measurement`: the values measured all the same, where they are worth keeping.
    """

    def __init__(self, reason: str, measurement: Measurement | None = None) -> None:
        super().__init__(reason)
        self.measurement = measurement


class Damaged(UserError):
    """Results that differ from what was written. `what`: the sentence without its fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}.")
        self.what = what


@dataclass(frozen=True)
class Record:
    """A record on disk. The tables are read when asked for; Damaged when one cannot be."""

    folder: Path
    point: Point
    manifest: dict[str, Any]
    stored: Mapping[str, Any] | None
    """The content of run.json; None for a point that failed before it was measured."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters of the engine; empty for a point that failed before it was measured."""
        return {} if self.stored is None else self.stored["counters"]

    @cached_property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """{name: {value, unit, n, missing}}; empty for a point that failed before it was measured."""
        if self.stored is None:
            return {}
        place = cache_of(self.manifest)
        stored = metrics_cache.find(place)
        if stored is None:
            stored = as_stored({name: each.as_dict() for name, each in self._made().items()})
            metrics_cache.keep(place, stored)
        return read_metrics(stored)

    def metric(self, name: str) -> dict[str, Any] | None:
        """Return one of `metrics`, or another percentile of what some are percentiles of; None for any other."""
        metric, asked = self.metrics.get(name), parsed(name)
        if metric or name in KNOWN or not asked.quantile:  # every run has the metrics of the vocabulary, or lacks them
            return metric
        if all(parsed(each).family != asked.family for each in self.metrics):
            return metric
        place = cache_of(self.manifest, name)
        stored = metrics_cache.find(place)
        if stored is None:
            made = another_percentile(name, self._made())
            stored = as_stored({} if made is None else {name: made.as_dict()})
            metrics_cache.keep(place, stored)
        return read_metrics(stored).get(name)

    def metrics_with(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return `metrics` with the others of these that can be asked for."""
        return self.metrics | {name: metric for name in names if (metric := self.metric(name)) is not None}

    def _made(self) -> dict[str, Metric]:
        """Return the metrics as the tables give them."""
        from harness.kinds import kind_of
        from harness.kinds.kind import OnePass

        assert self.stored is not None, "it was measured"
        trace = self.trace()
        kind = kind_of(trace)
        try:
            facts = facts_of(self.stored, kind.Timing)
        except ValueError:
            raise _damaged(self.folder, f"{RUN} is not what was written (timing)") from None
        pieces = isinstance(kind, OnePass) and facts.live is None
        return metrics_of(
            kind,
            facts,
            planned_turns(trace, facts),
            self._event_pieces() if pieces else self.table("events"),
            self.table("steps"),
            self.table("requests"),
            {name: self.table(name) for name in READ_BY_METRICS if self.has(name)},
            trace,
        )

    def _event_pieces(self) -> Iterator[pd.DataFrame]:
        """Yield the event log, some rows at a time: that of a long run need not fit into memory."""
        path = self.folder / "events.parquet"
        try:
            with pq.ParquetFile(path) as file:
                for rows in range(file.num_row_groups):
                    yield file.read_row_group(rows).to_pandas()
        except NO_PARQUET as error:
            raise _unreadable(path, error) from None

    @property
    def error(self) -> str | None:
        """Reason of the failure; None when the point did not fail."""
        return self.manifest.get("error")

    @property
    def invalid(self) -> bool:
        """True where the machine, not the engine, determined the result."""
        return (self.error or "").startswith(INVALID)

    def has(self, table: str) -> bool:
        """Return whether it has such a table; an INVALID point has some."""
        return (self.folder / f"{table}.parquet").is_file()

    def trace(self) -> Trace:
        try:
            return Trace.load(self.folder / TRACE)
        except UserError:
            raise _damaged(self.folder, f"{TRACE} is no trace") from None

    def table(self, name: str, **options: Any) -> pd.DataFrame:
        """Return `events`, `requests`, `steps`, or a table that only some runs have; `options` of
        `pandas.read_parquet`."""
        path = self.folder / f"{name}.parquet"
        try:
            return pd.read_parquet(path, **options)
        except NO_PARQUET as error:
            raise _unreadable(path, error) from None


def load_record(folder: Path) -> Record:
    """Open a finished or failed record. Damaged when a file differs from what was written; UserError for a newer
    schema."""
    stored = _read_json(folder / MANIFEST)
    try:
        check_schema(stored["schema_version"], folder)
    except (KeyError, TypeError):
        raise _damaged(folder, f"{MANIFEST} is not what was written") from None
    manifest = _typed(Manifest, stored, folder / MANIFEST)
    _check_id(folder, manifest.id, stored["point"])
    _check_listed(folder, manifest.files, finished=manifest.status == "ok")
    _check_sums(folder, manifest.files)
    run = None
    if manifest.status == "ok" or (folder / RUN).exists():
        run = _read_json(folder / RUN)
        _typed(Run, run, folder / RUN)
    return Record(folder, manifest.point, stored, run)


def _typed(kind: type[Model], stored: Any, path: Path) -> Model:
    """Return the content of a file of a record. Damaged where a field is missing or of another type."""
    try:
        return kind.model_validate_json(json.dumps(stored), strict=True)
    except ValidationError as error:
        wrong = printable(".".join(map(str, error.errors()[0]["loc"])), 60)
        raise _damaged(path.parent, f"{path.name} is not what was written{wrong and f' ({wrong})'}") from None


def _check_id(folder: Path, id: str, point: Mapping[str, Any]) -> None:
    """Raise Damaged where the stored point is not the one of the record's id, or of the folder's name."""
    point_id, name = id_of(point), folder.name.partition(".")[0]
    named = name if _ID.fullmatch(name) else point_id  # a copy may be called anything else
    if not point_id == id == named:
        raise _damaged(folder, f"{MANIFEST} holds the point {point_id}, and the record is that of {named}")


def _check_listed(folder: Path, files: Mapping[str, Sums], finished: bool) -> None:
    """Raise Damaged where the list of files lacks one that exists, or that every finished record has."""
    there = {path.name for path in folder.iterdir() if path.suffix in _SUFFIXES} - {MANIFEST}
    always = {RUN, TRACE, *(f"{name}.parquet" for name in TABLES)} if finished else set()
    lacking = sorted((there | always) - files.keys())
    if lacking:
        raise _damaged(folder, f"{MANIFEST} does not list {lacking[0]}")


def _check_sums(folder: Path, files: dict[str, Sums]) -> None:
    for name, written in files.items():
        path = folder / name
        try:
            stat = path.stat()
            if stat.st_size != written.bytes:
                raise _damaged(folder, f"{name} has {stat.st_size} bytes and was written with {written.bytes}")
            if _sha256(path, stat.st_size, stat.st_mtime_ns) != written.sha256:
                raise _damaged(folder, f"{name} has another SHA-256 than when it was written")
        except OSError as error:
            raise _unreadable(path, error) from None


@cache
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Return the SHA-256 of a file that has not changed since `mtime_ns`. The cache serves commands that open the same
    record several times."""
    del size, mtime_ns
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, RecursionError):
        raise _damaged(path.parent, f"{path.name} is not valid JSON") from None


def _unreadable(path: Path, error: Exception) -> UserError:
    """Return the error of an unreadable file: damage, unless the system refused it, when the record may be whole."""
    if isinstance(error, FileNotFoundError):
        return _damaged(path.parent, f"{path.name} is missing")
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"{path} cannot be read: {error.strerror}; make it readable.")
    return _damaged(path.parent, f"{path.name} is damaged")


def _damaged(folder: Path, what: str) -> Damaged:
    return Damaged(
        f"{folder} is not a readable record: {what}", "run its experiment again, which measures the point anew"
    )


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
    outcome |= point.sources(measurement.requests.get("turn_start_s"))
    manifest = _write_manifest(folder, point, environment, started, outcome)
    metrics_cache.keep(cache_of(manifest), as_stored(measurement.metrics))


def write_tables(folder: Path, point: Point, measurement: Measurement) -> None:
    """Write trace, tables and the facts of the run, which finished and INVALID records have."""
    with (folder / TRACE).open("wb") as file:
        measurement.trace.write(file)
    requests = pa.Table.from_pandas(measurement.requests, preserve_index=False)
    tables = {"events": measurement.events, "steps": measurement.steps, "requests": requests, **measurement.more}
    for name, table in tables.items():
        if isinstance(table, pa.Table):
            write_table(table, folder / f"{name}.parquet")
    for name, content in measurement.files.items():
        (folder / name).write_bytes(content)
    write_json(folder / RUN, {"schema_version": SCHEMA_VERSION, "point": point.id, **measurement.facts.stored()})


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table of a record."""
    pq.write_table(table.replace_schema_metadata(None), path, compression=COMPRESSION)


def write_failure(
    folder: Path,
    point: Point,
    reason: str,
    environment: dict[str, Any],
    started: datetime,
    measurement: Measurement | None = None,
) -> None:
    """Complete the rest of a failed worker in `folder` (its log, perhaps nothing) to a failed record.

    `measurement`: of an INVALID point; it is kept.
    """
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():  # a worker may have been stopped while it wrote them
        if path.name != LOG:
            path.unlink()
    (folder / LOG).touch()
    outcome: dict[str, Any] = {"status": "failed", "error": reason}
    if measurement is not None:
        write_tables(folder, point, measurement)
        outcome |= {"proof": measurement.proof, "cost": measurement.cost}
    (folder / ERROR).write_text(reason + "\n")
    manifest = _write_manifest(folder, point, environment, started, outcome)
    if measurement is not None:
        metrics_cache.keep(cache_of(manifest), as_stored(measurement.metrics))


def is_failure(folder: Path) -> bool:
    """Return whether a worker has completed its failed record itself."""
    return (folder / ERROR).exists() and (folder / MANIFEST).exists()


def publish(folder: Path, target: Path) -> None:
    """Flush `folder` to disk and rename it to `target`; a record that already exists there wins."""
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
    return points_dir / f"{TEMPORARY}{point_id}-{pid}"


def failed(points_dir: Path, point_id: str) -> Path:
    return points_dir / f"{point_id}.failed"


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON, whole or not at all; the same bytes for the same data. ValueError for NaN."""
    text = json.dumps(plain_json(data), indent=1, sort_keys=True, allow_nan=False) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def plain_json(data: Any) -> Any:
    """Return the data with infinite numbers as the string "inf": JSON has no word for the latency of a turn that
    failed."""
    if isinstance(data, Mapping):
        return {name: plain_json(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain_json(value) for value in data]
    return INFINITE if isinstance(data, float) and math.isinf(data) and data > 0 else data


def read_metrics(stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return metrics as JSON has them, with infinite values as numbers."""
    return {
        name: {**metric, "value": math.inf} if metric["value"] == INFINITE else metric
        for name, metric in stored.items()
    }


def as_stored(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as JSON has them. ValueError for NaN."""
    stored = plain_json(metrics)
    json.dumps(stored, allow_nan=False)
    return stored


def cache_of(manifest: Mapping[str, Any], metric: str = "") -> Path:
    """Return where the metrics of a record with this manifest are kept, or one that was asked for."""
    sums = {name: each["sha256"] for name, each in manifest["files"].items()}
    return metrics_cache.place(metrics_hash() + metric, sums)


def _write_manifest(
    folder: Path, point: Point, environment: dict[str, Any], started: datetime, outcome: dict[str, Any]
) -> dict[str, Any]:
    """Write the last file of a record, as it has the sums of the others, and return its content."""
    facts = {
        "schema_version": SCHEMA_VERSION,
        "id": point.id,
        "point": point.model_dump(mode="json"),
        **point.sources(),
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **environment,
        **outcome,
        "files": {path.name: sums(path) for path in folder.iterdir() if path.name not in (LOG, ERROR)},
    }
    write_json(folder / MANIFEST, facts)
    return facts


def sums(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {"bytes": stat.st_size, "sha256": _sha256(path, stat.st_size, stat.st_mtime_ns)}


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
