"""Records of points: written whole or not at all, and refused when newer or damaged."""

import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.experiments.provenance import environment
from harness.records.record import (
    LOG,
    MANIFEST,
    Damaged,
    Record,
    failed,
    load_record,
    publish,
    temporary,
    write_failure,
    write_record,
)
from tests.harness import fakes
from workloads.errors import UserError

BYTES = ("run.json", "requests.parquet", "events.parquet", "steps.parquet", "trace.parquet")


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
    assert read.point.model_dump() == point.model_dump()
    assert read.trace().header.hash == point.trace_hash
    assert read.table("requests")["session"].tolist() == [0]
    facts = {"point", "revision", "packages", "machine", "proof", "cost", "started", "finished", "schema_version"}
    assert facts <= read.manifest.keys()
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


def test_a_failure_keeps_the_log_and_the_reason_and_nothing_half_written(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    folder = temporary(tmp_path, point.id, 1)
    folder.mkdir()
    (folder / LOG).write_text("the last words")
    (folder / "events.parquet").write_text("{")
    write_failure(folder, point, "it broke", environment(), datetime.now(UTC))
    publish(folder, failed(tmp_path, point.id))
    read = load_record(failed(tmp_path, point.id))
    assert (read.manifest["status"], read.manifest["error"], read.metrics) == ("failed", "it broke", {})
    assert (read.folder / LOG).read_text() == "the last words"
    assert {path.name for path in read.folder.iterdir()} == {LOG, MANIFEST, "error.txt"}


def test_a_newer_record_is_refused(tmp_path: Path) -> None:
    folder = record(tmp_path).folder
    restate(folder, schema_version=99)
    with pytest.raises(UserError, match="newer"):
        load_record(folder)


def restate(folder: Path, **changes: object) -> None:
    """Change facts of a manifest; None: without it."""
    manifest = {**json.loads((folder / MANIFEST).read_text()), **changes}
    (folder / MANIFEST).write_text(json.dumps({name: fact for name, fact in manifest.items() if fact is not None}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("points")).folder


@given(name=st.sampled_from([*BYTES, MANIFEST]), data=st.data())
def test_a_file_that_is_not_what_was_written_is_noticed_and_named(whole: Path, name: str, data: st.DataObject) -> None:
    content = (whole / name).read_bytes()
    length = data.draw(st.integers(0, len(content) - 1), "bytes kept")
    damage = st.sampled_from([content[:length], content[:length] + b"\xff" + content[length + 1 :], None])
    damaged = data.draw(damage, "damaged")
    # Without its last newline, JSON says the same
    assume(damaged is None or damaged.rstrip() != content.rstrip())
    with tempfile.TemporaryDirectory() as parent:
        folder = shutil.copytree(whole, Path(parent) / whole.name)
        (folder / name).unlink()
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        with pytest.raises(Damaged) as error:
            load_record(folder)
    assert f"{folder} is not a readable record: {name}" in error.value.what


@given(data=st.data())
def test_a_manifest_whose_point_is_another_or_that_lost_a_file_is_noticed(whole: Path, data: st.DataObject) -> None:
    manifest = json.loads((whole / MANIFEST).read_text())
    point, files = manifest["point"], manifest["files"]
    what = data.draw(st.sampled_from(["seed", "params", "engine", "id", "files", "name"]))
    if what == "seed":
        point["seed"] += data.draw(st.integers(1, 99))
    elif what == "params":
        groups = [point[group] for group in point if group.endswith("_params") and point[group]]
        group = data.draw(st.sampled_from(groups))
        group[data.draw(st.sampled_from(sorted(group)))] = "changed"
    elif what == "engine":
        point["engine"] = "liveserve"
    elif what == "id":
        manifest["id"] = "0" * 16
    elif what == "files":
        del files[data.draw(st.sampled_from(sorted(files)))]
    with tempfile.TemporaryDirectory() as parent:
        folder = shutil.copytree(whole, Path(parent) / ("0123456789abcdef" if what == "name" else whole.name))
        (folder / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(Damaged, match=f"not a readable record: {MANIFEST} "):
            load_record(folder)


def test_a_copy_of_a_record_has_any_name_and_a_point_any_axes(tmp_path: Path) -> None:
    read = record(tmp_path)
    copy = shutil.copytree(read.folder, tmp_path / "the one of Monday")
    restate(copy, point={**read.manifest["point"], "axes": ["c"]})
    assert load_record(copy).point.id == read.point.id


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"files": None}, "files"),
        ({"files": {}}, "does not list"),
        ({"started": "2999-01-01"}, "started"),
        ({"finished": "2999-01-01T00:00:00"}, "finished"),
    ],
)
def test_a_manifest_without_sums_or_time_zones_is_refused(tmp_path: Path, change: dict, wrong: str) -> None:
    folder = record(tmp_path).folder
    restate(folder, **change)
    with pytest.raises(Damaged, match=f"{MANIFEST} .*{wrong}.*; run its experiment again"):
        load_record(folder)


def test_a_file_that_the_system_refuses_is_not_taken_for_damaged(tmp_path: Path) -> None:
    path = record(tmp_path).folder / "steps.parquet"
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(UserError, match=r"steps\.parquet cannot be read: Too many levels") as error:
        load_record(path.parent)
    assert not isinstance(error.value, Damaged)
