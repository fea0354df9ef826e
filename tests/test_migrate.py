"""Finished replays of 0.2 are carried over with the same bytes, or named with the reason why not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from harness.experiments.point import id_of
from harness.records.record import RUN, as_stored, load_record, write_json
from harness.records.results import read_results
from tests.harness.fakes import sealed
from tests.reports import served
from tools import migrate

COMMIT = "c" * 40


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results as 0.2 had them, of a program that gave its points other ids."""
    now = served.serve(tmp_path / "now", served.bench(grid={"c": [8], "p": [0.0]}, seeds=2))
    before = shutil.copytree(now, tmp_path / "before")
    experiment = before / "experiment.json"
    stored = json.loads(experiment.read_text())
    ids = {id: of_02(before / "points" / id) for id in stored.pop("points")}
    experiment.write_text(json.dumps({**stored, "schema_version": 1}))
    monkeypatch.setattr(migrate, "ids_at", lambda commit, experiments: [[*ids.values()]])
    return before


def of_02(record: Path) -> str:
    """Write a record as 0.2 did, and return its id."""
    found = load_record(record)
    summary = {"metrics": as_stored(found.metrics), "counters": found.counters}
    write_json(record / "summary.json", {"schema_version": 1, "point": "", **summary})
    (record / RUN).unlink()
    requests = pd.read_parquet(record / "requests.parquet").drop(columns=["ended_s", "phase"])
    requests.to_parquet(record / "requests.parquet")
    point = {**found.manifest["point"], "schema_version": 1, "code_hash": "of 0.2"}
    id = id_of(point)
    revision = {"commit": COMMIT, "dirty": False, "diff_sha256": None}
    facts = {"schema_version": 1, "id": id, "point": point, "revision": revision}
    write_json(record / "manifest.json", {**found.manifest, **facts})
    sealed(record)
    record.rename(record.with_name(id))
    return id


def run(before: Path, after: Path) -> Any:
    with pytest.raises(typer.Exit) as end:
        migrate.main(before, after)
    return end.value.exit_code


def test_points_are_carried_over_with_the_same_bytes(former: Path, tmp_path: Path) -> None:
    assert run(former, tmp_path / "after") == 0
    _, records = read_results(tmp_path / "after")
    _, wanted = read_results(tmp_path / "now")
    assert [record.point.id for record in records] == [record.point.id for record in wanted]
    for record, other in zip(records, wanted, strict=True):
        assert record.metrics == other.metrics and record.counters == other.counters
        for table in other.folder.glob("*.parquet"):
            assert (record.folder / table.name).read_bytes() == table.read_bytes()


def edited_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(record: Path) -> None:
        facts = json.loads((record / "manifest.json").read_text())
        change(facts)
        (record / "manifest.json").write_text(json.dumps(facts))

    return edit


def better(record: Path) -> None:
    """A latency that its log does not give, with the sums of its files."""
    requests = pd.read_parquet(record / "requests.parquet")
    requests["audio_ttfp_s"] /= 10
    requests.to_parquet(record / "requests.parquet")
    sealed(record)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda record: (record / "events.parquet").write_bytes(b"x"), "events.parquet is not as it was written"),
        (edited_manifest(lambda facts: facts["point"].update(seed=9)), "it is not the point of its id"),
        (edited_manifest(lambda facts: facts["revision"].update(dirty=True)), "outside a checkout"),
        (better, "its log gives another request table now"),
    ],
)  # fmt: skip
def test_a_point_that_cannot_be_trusted_stays(
    former: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: Callable[[Path], object], why: str
) -> None:
    record = sorted((former / "points").iterdir())[0]
    edit(record)
    assert run(former, tmp_path / "after") == 1
    out = capsys.readouterr().out
    assert f"{record.name} stays: " in out and why in out and "3 points carried over, 1 left" in out


def test_a_program_that_gives_other_ids_is_not_the_one_of_the_record(
    former: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(migrate, "ids_at", lambda commit, experiments: [["0" * 16] * 4])
    assert run(former, tmp_path / "after") == 1
    assert f"commit {COMMIT[:8]} gives the experiment's points other ids" in capsys.readouterr().out


def test_only_results_of_02_are_taken(tmp_path: Path) -> None:
    for stored, why in (({}, "schema 0"), ({"schema_version": 2}, "schema 2")):
        (tmp_path / "experiment.json").write_text(json.dumps(stored))
        with pytest.raises(typer.BadParameter, match=why):
            migrate.read(tmp_path)
    with pytest.raises(typer.BadParameter, match="no results folder"):
        migrate.read(tmp_path / "nothing")
