"""A results directory belongs to one experiment and one run at a time."""

import errno
import json
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.experiments.provenance import environment
from harness.records.record import Damaged, write_record
from harness.records.results import claim, read_results, record_folders, unfinished, write_summary
from harness.replays.expand import expand
from tests.harness import fakes
from workloads.errors import UserError

TWO = fakes.experiment(2)
"""It has two points."""


def test_what_a_killed_run_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".tmp-experiment.json").write_text("half")  # before its first file: it is nobody's folder yet
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        (points_dir / ".tmp-0123456789abcdef-1").mkdir()
        (points_dir / ".tmp-0123456789abcdef-1" / "events.parquet").write_text("half")
        (tmp_path / ".tmp-summary.json").write_text("half")
    with claim(tmp_path, fakes.experiment(1)):
        assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["experiment.json", "points"]
        assert not list(tmp_path.glob(".tmp*"))
        assert list(points_dir.iterdir()) == []


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


def test_two_runs_do_not_share_a_directory_and_a_newer_experiment_is_refused(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)):
        refused(tmp_path, "in use")
    with claim(tmp_path, fakes.experiment(1)):
        pass
    edited(tmp_path / "experiment.json", schema_version=99)
    refused(tmp_path, "newer")


def test_only_points_with_a_record_count(tmp_path: Path) -> None:
    points = fakes.points(2)
    with claim(tmp_path, fakes.experiment(2)) as points_dir:
        assert unfinished(points_dir, points) == points
        assert write_summary(tmp_path, [point.id for point in points]) == []
    with pytest.raises(UserError, match="not a results directory"):
        read_results(tmp_path / "points")


def write(points_dir: Path, point: Point) -> None:
    (points_dir / point.id).mkdir()
    write_record(points_dir / point.id, point, fakes.measure(point), {}, environment(), datetime.now(UTC))


def measured(out: Path, experiment: Experiment = TWO) -> Sequence[Point]:
    """A results directory in which every point is finished."""
    points = expand(experiment)
    with claim(out, experiment) as points_dir:
        for point in points:
            write(points_dir, point)
    write_summary(out, [point.id for point in points])
    return points


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_damaged_record_is_set_aside_and_counts_as_not_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = measured(tmp_path)
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
        write(points_dir, damaged)
        assert unfinished(points_dir, points) == []


def test_a_directory_without_room_for_its_first_file_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        refused(tmp_path, "cannot be written: No space left on device; make room")
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        assert points_dir.is_dir()


def test_a_damaged_record_of_another_card_stops_no_summary(tmp_path: Path) -> None:
    points = measured(tmp_path)
    (tmp_path / "points" / points[0].id / "run.json").write_text("{")
    (row,) = write_summary(tmp_path, [point.id for point in points])
    assert row["point"] == points[1].id


@pytest.mark.parametrize("text", ["", "{", "3", "[1]", "[{}]", '[{"point": 1}]', '"\\ud800', "[" * 100_000])
def test_a_garbled_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    measured(tmp_path, fakes.experiment(1))
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(Damaged, match=r"experiment\.json .*; run its experiment again"):
        read_results(tmp_path)


def test_an_edited_or_deleted_summary_has_no_effect(tmp_path: Path) -> None:
    points = measured(tmp_path)
    for edit in (lambda: (tmp_path / "summary.json").write_text("{"), (tmp_path / "summary.json").unlink):
        edit()
        _, records = read_results(tmp_path)
        assert [record.metrics["audio_ttfp_p50"]["value"] for record in records] == [0.0, 0.1]
    assert len(write_summary(tmp_path, [point.id for point in points])) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"set": {"sessions": 999}}, r"has the point \w{16}, which experiment\.json does not ask for"),
        ({"engines": ["liveserve"]}, r"has the point \w{16}, which"),
        ({"seeds": [7]}, r"has the point \w{16}, which"),
        ({"device": "cuda"}, r"has the point \w{16}, which"),
        ({"seeds": [0, 1, 2, 3, 4]}, "lacks vllm_omni seed=2 and 2 more of its points, for which"),
        ({"engines": ["vllm_omni", "liveserve"]}, r"lacks liveserve seed=0 and 1 more of its points"),
        ({"grid": {"p": [0.3]}}, r"has the point \w{16}, which"),
        ({"points": None}, "has no results yet; run the experiment to its end first"),
    ],
)  # fmt: skip
def test_records_are_the_points_of_the_experiment(tmp_path: Path, change: dict, message: str) -> None:
    """Neither fewer nor others than it asks for, and of its device."""
    measured(tmp_path)
    edited(tmp_path / "experiment.json", **change)
    with pytest.raises(UserError, match=message):
        read_results(tmp_path)


def test_a_lost_record_is_named(tmp_path: Path) -> None:
    points = measured(tmp_path)
    shutil.rmtree(tmp_path / "points" / points[1].id)
    with pytest.raises(Damaged, match=f"lacks the point {points[1].id}, which experiment.json names"):
        read_results(tmp_path)
    edited(tmp_path / "experiment.json", points=[points[0].id])
    with pytest.raises(Damaged, match="lacks vllm_omni seed=1, for which"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("engines", "grid", "count"),
    [
        # An axis that a point does not have asks for no more points
        (["vllm_omni", "liveserve"], {"thinker_alpha": [0.5, 1.0], "p": [0, 0.5]}, 2 + 4),
        (["vllm_omni"], {"scheduler": ["fcfs", "liveserve"], "thinker_alpha": [0.5, 1.0]}, 1 + 2),
        # A point keeps the list in another order
        (["vllm_omni"], {"scale": ["talker.host_s=1.25,hop_s=0.75", None]}, 2),
    ],
)
def test_the_points_that_an_experiment_asks_for_are_found(
    tmp_path: Path, engines: list[str], grid: dict, count: int
) -> None:
    experiment = Experiment(name="fake", engines=engines, workload="voice", set={"sessions": 2}, grid=grid, seeds=[0])
    assert len(measured(tmp_path, experiment)) == count
    assert len(read_results(tmp_path)[1]) == count


def test_a_run_writes_a_damaged_experiment_anew_and_keeps_the_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = measured(tmp_path)
    (tmp_path / "experiment.json").write_text("{")
    with claim(tmp_path, fakes.experiment(2)) as points_dir:
        assert unfinished(points_dir, points) == []
    assert "experiment.json is damaged" in caplog.text
    assert (tmp_path / "experiment.json.damaged").read_text() == "{"
    write_summary(tmp_path, [point.id for point in points])
    assert read_results(tmp_path)[0] == fakes.experiment(2)


def test_a_file_of_that_name_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text("{precious")
    refused(tmp_path, "is damaged")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]
