"""Stand-ins for a measurement, importable in a worker; vLLM is not loaded."""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa

from harness.events import point_progress
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.records import metrics_cache
from harness.records.measured import RunFacts
from harness.records.record import (
    ERROR,
    LOG,
    MANIFEST,
    RUN,
    InvalidPoint,
    Measurement,
    as_stored,
    cache_of,
    load_record,
)
from harness.replays.expand import expand
from harness.replays.point import ReplayPoint
from workloads.registry import make_trace


def sealed(record: Path) -> Path:
    """The record with the sums of its files as they are now, so that a test's changes are not taken for damage."""
    manifest = json.loads((record / MANIFEST).read_text())
    manifest["files"] = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in record.iterdir()
        if path.name not in (MANIFEST, LOG, ERROR)
    }
    (record / MANIFEST).write_text(json.dumps(manifest))
    return record


def restated(record: Path, change: Callable[[dict], object]) -> None:
    """Let a record have other metrics than its tables give: those that `change` leaves of them."""
    metrics = {name: dict(metric) for name, metric in load_record(record).metrics.items()}
    change(metrics)
    facts = json.loads((record / RUN).read_text())
    (record / RUN).write_text(json.dumps({**facts, "restated": str(record.absolute())}))
    metrics_cache.keep(cache_of(load_record(sealed(record)).manifest), as_stored(metrics))


def measured(out: Path) -> dict[str, bytes]:
    """Return the files of a results directory that hold nothing of the wall clock."""
    paths = [*out.glob("summary.json"), *out.glob("points/*/run.json"), *out.glob("points/*/*.parquet")]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def points(seeds: int, **grid: list) -> list[ReplayPoint]:
    """Points that differ by seed, and over `grid`."""
    return expand(experiment(seeds, **grid))


def experiment(seeds: int, **grid: list) -> Experiment:
    return Experiment(
        name="fake", engines=["vllm_omni"], workload="voice", set={"sessions": 2}, grid=grid, seeds=list(range(seeds))
    )


def remove_results(point: Point, folder: Path) -> Measurement:
    """The results directory vanishes meanwhile."""
    shutil.rmtree(folder.parent)
    return measure(point, folder)


def measure_once_seen(seen: Path, point: Point, folder: Path) -> Measurement:
    """Says that it is half done, and goes on when `seen` is there."""
    point_progress.expect(4)
    point_progress.turn_over()
    point_progress.turn_over()
    while not seen.exists():
        time.sleep(0.01)
    return measure(point)


def measure(point: Point, folder: Path | None = None) -> Measurement:
    """A finished measurement whose numbers depend on the point alone."""
    print(f"measuring seed {point.seed}")
    os.write(2, b"a native library complains\n")
    table = pa.table({"t": [0.0, 1.0], "kind": ["session_start", "run_end"], "seed": [point.seed] * 2})
    return Measurement(
        trace=make_trace(point.workload, point.workload_params, point.seed),
        events=table,
        steps=table,
        requests=pd.DataFrame({"session": [0], "seed": [point.seed]}),
        metrics={"audio_ttfp_p50": {"value": point.seed / 10, "unit": "s", "n": 1, "missing": 0}},
        facts=RunFacts(1.0, counters={"steps": 2}),
        proof={"requests_before": 0},
        cost={"wall_s": time.monotonic(), "simulated_s": 1.0},
    )


def where_vllm_is(point: Point, folder: Path) -> Measurement:
    """Says in its proof which vLLM this process would load."""
    spec = find_spec("vllm")
    return replace(measure(point), proof={"requests_before": 0, "vllm": spec.origin if spec else None})


def misbehave(point: Point, folder: Path) -> Measurement:
    """Seed 0 is fine; every other seed ends in a way of its own."""
    print(f"seed {point.seed} says something first", flush=True)
    if point.seed == 1:
        raise RuntimeError("the engine is lost")
    if point.seed == 2:
        os._exit(3)
    if point.seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if point.seed == 4:
        time.sleep(3600)
    return measure(point)


PRELOAD = (__name__,)
"""A fork server that has imported this starts a worker at once. vLLM is not needed."""


def interrupt(sent: int, point: Point, folder: Path) -> Measurement:
    """Seed 1 sends the signal to the command, and waits to be ended."""
    if point.seed == 1:
        os.kill(psutil.Process().parents()[1].pid, sent)
        time.sleep(3600)
    return measure(point)


def fail(point: Point, folder: Path) -> Measurement:
    raise ValueError("nothing works")


def end(point: Point, folder: Path) -> Measurement:
    """Ends without a word, so that the command has to write the failure."""
    os._exit(3)


def late(point: Point, folder: Path) -> Measurement:
    """Measured, by a load generator that was late."""
    raise InvalidPoint("the generator was late", measure(point))


def lose_slot(point: Point, folder: Path) -> Measurement:
    """Ends the process that has the fork server, and so with it this one."""
    psutil.Process().parents()[1].kill()
    time.sleep(3600)
    raise AssertionError("still there")


def lose_server_once(diary: Path, point: Point, folder: Path) -> Measurement:
    """Ends the fork server for the first time."""
    if _begun(diary, point) == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)
    return measure(point)


def counted(diary: Path, pause_s: float, point: Point, folder: Path) -> Measurement:
    _begun(diary, point)
    time.sleep(pause_s)
    return measure(point)


def _begun(diary: Path, point: Point) -> int:
    """Note in `diary` that `point` begins; return how often it has begun."""
    with diary.open("a") as file:
        file.write(f"begin {point.id} {os.getpid()}\n")
    return diary.read_text().count(point.id)
