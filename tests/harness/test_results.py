"""A results directory belongs to one experiment and one run at a time."""

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.experiments.point import Point
from harness.experiments.provenance import environment
from harness.records.record import Damaged, write_record
from harness.records.results import claim, read_results, record_folders, unfinished, write_summary
from tests.harness import fakes
from workloads.errors import UserError


def test_an_experiment_may_extend_its_own_results(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results"
    with claim(out, fakes.experiment(1)) as points_dir:
        assert points_dir == out / "points"
    with claim(out, fakes.experiment(3, p=[0, 0.5])):
        assert json.loads((out / "experiment.json").read_text())["seeds"] == [0, 1, 2]


def test_what_a_killed_run_left_is_swept(tmp_path: Path) -> None:
    with claim(tmp_path / "out", fakes.experiment(1)) as points_dir:
        (points_dir / ".tmp-0123456789abcdef-1").mkdir()
        (points_dir / ".tmp-0123456789abcdef-1" / "events.parquet").write_text("half")
        (tmp_path / "out" / ".tmp-summary.json").write_text("half")
    with claim(tmp_path / "out", fakes.experiment(1)):
        assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".tmp")] == []
        assert list(points_dir.iterdir()) == []


def test_a_run_killed_before_its_first_file_does_not_make_the_directory_foreign(tmp_path: Path) -> None:
    (tmp_path / ".tmp-experiment.json").write_text("half")
    with claim(tmp_path, fakes.experiment(1)):
        assert (tmp_path / "experiment.json").exists()


def refused(out: Path, word: str) -> None:
    with pytest.raises(UserError) as error, claim(out, fakes.experiment(1)):
        pass
    assert word in str(error.value) and str(out) in str(error.value)


def test_directories_of_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    refused(tmp_path, "other files")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    refused(tmp_path / "thesis.tex", "is a file")
    refused(tmp_path / "thesis.tex" / "out", "cannot be written")
    with claim(tmp_path / "out", fakes.experiment(1).model_copy(update={"name": "other"})):
        refused(tmp_path / "out", "'other'")
    before = (tmp_path / "out" / "experiment.json").read_text()
    refused(tmp_path / "out", "'fake'")
    assert (tmp_path / "out" / "experiment.json").read_text() == before


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)):
        refused(tmp_path, "in use")
    with claim(tmp_path, fakes.experiment(1)):
        pass


def test_a_newer_experiment_is_refused(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)):
        pass
    data = json.loads((tmp_path / "experiment.json").read_text())
    (tmp_path / "experiment.json").write_text(json.dumps({**data, "schema_version": 99}))
    refused(tmp_path, "newer")


def test_only_points_with_a_record_count(tmp_path: Path) -> None:
    points = fakes.points(2)
    with claim(tmp_path, fakes.experiment(2)) as points_dir:
        assert unfinished(points_dir, points) == points
        assert write_summary(tmp_path, [point.id for point in points]) == []
    with pytest.raises(UserError, match="not a results directory"):
        read_results(tmp_path / "points")


def measured(out: Path, seeds: int) -> list[Point]:
    """A results directory in which every point is finished."""
    points = fakes.points(seeds)
    with claim(out, fakes.experiment(seeds)) as points_dir:
        for point in points:
            folder = points_dir / point.id
            folder.mkdir()
            write_record(folder, point, fakes.measure(point), {}, environment(), datetime.now(UTC))
    write_summary(out, [point.id for point in points])
    return points


def test_a_damaged_record_is_set_aside_and_counts_as_not_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = measured(tmp_path, 2)
    points_dir, damaged = tmp_path / "points", points[1]
    for kept in (5, 4):  # again, what was set aside before goes
        caplog.clear()
        os.truncate(points_dir / damaged.id / "events.parquet", kept)
        with pytest.raises(Damaged, match=damaged.id):
            read_results(tmp_path)
        assert unfinished(points_dir, points) == [damaged]
        (message,) = caplog.messages
        assert f"events.parquet has {kept} bytes" in message and damaged.label in message
        aside = points_dir / f"{damaged.id}.damaged"
        assert (aside / "events.parquet").stat().st_size == kept
        assert record_folders(points_dir) == [points_dir / points[0].id]
        write_record(
            _made(points_dir / damaged.id),
            damaged,
            fakes.measure(damaged),
            {},
            environment(),
            datetime.now(UTC),
        )
        assert unfinished(points_dir, points) == []


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_directory_without_room_for_its_first_file_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        refused(tmp_path, "cannot be written: No space left on device; make room")
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        assert points_dir.is_dir()


def test_a_damaged_record_of_another_card_stops_no_summary(tmp_path: Path) -> None:
    points = measured(tmp_path, 2)
    (tmp_path / "points" / points[0].id / "summary.json").write_text("{")
    (row,) = write_summary(tmp_path, [point.id for point in points])
    assert row["point"] == points[1].id


@pytest.mark.parametrize("text", ["", "{", "3", "[1]", "[{}]", '[{"point": 1}]', '"\\ud800', "[" * 100_000])
@pytest.mark.parametrize("name", ["summary.json", "experiment.json"])
def test_a_garbled_file_is_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    measured(tmp_path, 1)
    (tmp_path / name).write_text(text)
    with pytest.raises(Damaged, match=rf"{name} .*; run its experiment again"):
        read_results(tmp_path)


def test_a_summary_that_says_something_else_than_a_record_is_not_trusted(tmp_path: Path) -> None:
    points = measured(tmp_path, 2)
    rows = json.loads((tmp_path / "summary.json").read_text())
    rows[1]["metrics"]["audio_ttfp_p50"]["value"] *= 2
    (tmp_path / "summary.json").write_text(json.dumps(rows))
    with pytest.raises(Damaged, match=rf"summary\.json says something else of {points[1].id}"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[:1], "summary.json lacks the point"),
        (lambda rows: [], "summary.json lacks the point"),
        (lambda rows: [*rows, rows[0]], "summary.json has vllm_omni 0 twice, as"),
        (lambda rows: {}, "summary.json is damaged: it holds no list of points"),
    ],
)
def test_a_summary_has_each_point_once(tmp_path: Path, change: Callable, said: str) -> None:
    measured(tmp_path, 2)
    rows = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps(change(rows)))
    with pytest.raises(Damaged, match=f"{said}.*; run its experiment again"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"set": {"sessions": 999}},
        {"engines": ["liveserve"]},
        {"seeds": [7]},
        {"grid": {"p": [0.3]}},
    ],
)
def test_rows_are_of_the_experiment(tmp_path: Path, change: dict) -> None:
    measured(tmp_path, 1)
    stored = json.loads((tmp_path / "experiment.json").read_text())
    (tmp_path / "experiment.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(Damaged, match=r"has the point \w{16}, which experiment\.json does not ask for; run"):
        read_results(tmp_path)


def test_a_run_writes_a_damaged_experiment_anew_and_keeps_the_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = measured(tmp_path, 2)
    (tmp_path / "experiment.json").write_text("{")
    with claim(tmp_path, fakes.experiment(2)) as points_dir:
        assert unfinished(points_dir, points) == []
    assert "experiment.json is damaged" in caplog.text
    assert (tmp_path / "experiment.json.damaged").read_text() == "{"
    assert read_results(tmp_path)[0] == fakes.experiment(2)


def test_a_file_of_that_name_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text("{precious")
    refused(tmp_path, "is damaged")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]
