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


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".tmp-experiment.json").write_text("half")
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        (points_dir / ".tmp-0123456789abcdef-1").mkdir()
        (tmp_path / ".tmp-summary.json").write_text("half")
    with claim(tmp_path, fakes.experiment(1)):
        assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["experiment.json", "points"]
        assert not list(tmp_path.glob(".tmp*"))
        assert not list(points_dir.iterdir())


def refused(out: Path, word: str) -> None:
    with pytest.raises(UserError) as error, claim(out, fakes.experiment(1)):
        pass
    assert word in str(error.value) and str(out) in str(error.value)


@pytest.mark.parametrize(
    ("file", "out", "word"),
    [
        ("thesis.tex", "", "other files"),
        ("thesis.tex", "thesis.tex", "is a file"),
        ("thesis.tex", "thesis.tex/out", "cannot be written"),
        ("experiment.json", "", "is damaged"),
    ],
)
def test_directories_and_files_of_others_are_refused_and_left_alone(
    tmp_path: Path, file: str, out: str, word: str
) -> None:
    (tmp_path / file).write_text("{precious")
    refused(tmp_path / out, word)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "{precious"


def test_a_directory_of_another_experiment_is_refused_and_left_alone(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1).model_copy(update={"name": "other"})):
        pass
    before = (tmp_path / "experiment.json").read_text()
    refused(tmp_path, "'other'")
    assert (tmp_path / "experiment.json").read_text() == before


def test_a_directory_in_use_and_a_newer_experiment_are_refused(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)):
        refused(tmp_path, "in use")
    with claim(tmp_path, fakes.experiment(1)):
        pass
    edited(tmp_path / "experiment.json", schema_version=99)
    refused(tmp_path, "newer")


def write(points_dir: Path, point: Point) -> None:
    (points_dir / point.id).mkdir()
    write_record(points_dir / point.id, point, fakes.measure(point), {}, environment(), datetime.now(UTC))


def measured(out: Path, experiment: Experiment = fakes.experiment(2)) -> Sequence[Point]:
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
    for size in (5, 4):  # the second damaged record replaces the first
        caplog.clear()
        os.truncate(points_dir / damaged.id / "events.parquet", size)
        with pytest.raises(Damaged, match=damaged.id):
            read_results(tmp_path)
        assert unfinished(points_dir, points) == [damaged]
        (message,) = caplog.messages
        assert f"events.parquet has {size} bytes" in message
        assert (points_dir / f"{damaged.id}.damaged" / "events.parquet").stat().st_size == size
        assert record_folders(points_dir) == [points_dir / points[0].id]
        write(points_dir, damaged)
        assert unfinished(points_dir, points) == []


def test_a_directory_without_room_for_its_first_file_can_be_used_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        refused(tmp_path, "cannot be written: No space left on device; make room")
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        assert points_dir.is_dir()


@pytest.mark.parametrize("text", ["", "{", "3", "[1]", "[{}]", '[{"point": 1}]', '"\\ud800', "[" * 100_000])
def test_a_garbled_experiment_is_refused_with_the_fix(tmp_path: Path, text: str) -> None:
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
        ({"device": "cuda"}, r"has the point \w{16}, which experiment\.json does not ask for"),
        ({"seeds": [0, 1, 2, 3, 4]}, "lacks vllm_omni seed=2 and 2 more of its points, for which"),
        ({"engines": ["vllm_omni", "liveserve"]}, "lacks liveserve seed=0 and 1 more of its points"),
        ({"points": None}, "has no results yet; run the experiment to its end first"),
    ],
)
def test_records_that_are_not_the_points_of_the_experiment_are_refused(
    tmp_path: Path, change: dict, message: str
) -> None:
    """They are of two points: vllm_omni in virtual time, seeds 0 and 1."""
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
        # vllm_omni has no thinker_alpha: two points for its values of p, and four of liveserve
        (["vllm_omni", "liveserve"], {"thinker_alpha": [0.5, 1.0], "p": [0, 0.5]}, 2 + 4),
        (["vllm_omni"], {"scheduler": ["fcfs", "liveserve"], "thinker_alpha": [0.5, 1.0]}, 1 + 2),
        # A point keeps the list in another order
        (["vllm_omni"], {"scale": ["talker.host_s=1.25,hop_s=0.75", None]}, 2),
    ],
)
def test_every_point_of_a_finished_experiment_is_read(
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
