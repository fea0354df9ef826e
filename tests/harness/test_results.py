"""A results directory belongs to one experiment and one run at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.results import claim, read_results, unfinished, write_summary
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
