"""Records are complete or absent, the same bytes for the same point, and refused when newer or damaged."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.provenance import environment
from harness.record import LOG, Record, failed, load_record, publish, temporary, write_failure, write_record
from tests.harness import fakes
from workloads.errors import UserError

BYTES = ("summary.json", "requests.parquet", "events.parquet", "steps.parquet", "trace.parquet")


def record(points_dir: Path) -> Record:
    (point,) = fakes.points(1)
    folder = temporary(points_dir, point.id, os.getpid())
    folder.mkdir(parents=True)
    (folder / LOG).write_text("")
    write_record(folder, point, fakes.measure(point), {"pid": 1}, environment(), datetime.now(UTC))
    publish(folder, points_dir / point.id)
    return load_record(points_dir / point.id)


def test_a_record_holds_what_is_needed_to_run_it_again(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    read = record(tmp_path)
    assert read.point == point
    assert read.metrics["audio_ttfp_p50"]["unit"] == "s"
    assert read.trace().header.hash == point.trace_hash
    assert read.table("requests")["session"].tolist() == [0]
    expected = {
        "point",
        "revision",
        "packages",
        "machine",
        "proof",
        "cost",
        "started",
        "finished",
        "schema_version",
    }
    assert expected <= read.manifest.keys()
    assert {"cpu", "cores", "memory_bytes", "os", "python"} <= read.manifest["machine"].keys()
    assert "numpy" in read.manifest["packages"]
    assert [path.name for path in tmp_path.iterdir()] == [point.id]


def test_the_same_point_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = record(tmp_path / "one"), record(tmp_path / "other")
    assert one.manifest["cost"] != other.manifest["cost"]
    for name in BYTES:
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def test_a_finished_record_wins_over_a_second_one(tmp_path: Path) -> None:
    first = record(tmp_path).manifest
    assert record(tmp_path).manifest == first
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failure_keeps_the_log_and_the_reason(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    folder = temporary(tmp_path, point.id, 1)
    folder.mkdir()
    (folder / LOG).write_text("the last words")
    write_failure(folder, point, "it broke", environment(), datetime.now(UTC))
    publish(folder, failed(tmp_path, point.id))
    read = load_record(failed(tmp_path, point.id))
    assert (read.manifest["status"], read.manifest["error"], read.metrics) == ("failed", "it broke", {})
    assert (read.folder / LOG).read_text() == "the last words"


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    measurement = fakes.measure(point)
    measurement.metrics["audio_ttfp_p50"]["value"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path, point, measurement, {}, {}, datetime.now(UTC))


def test_a_newer_or_damaged_record_is_refused(tmp_path: Path) -> None:
    folder = record(tmp_path).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 99}))
    with pytest.raises(UserError, match="newer"):
        load_record(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="not a readable record"):
        load_record(folder)
