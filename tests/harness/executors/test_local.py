"""Every point has a fresh process; one that fails says why and harms no other; none outlives the command."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from harness.experiments.provenance import ROOT
from harness.experiments.run_order import Outcome
from harness.records.record import load_record
from harness.records.results import claim, unfinished, write_summary
from harness.replays.executors.local import LocalExecutor
from harness.replays.point import ReplayPoint
from harness.replays.worker.isolation import Work
from tests.harness import fakes
from tests.harness.fakes import measured
from tests.waiting import runs, wait_until
from workloads.errors import UserError

pytestmark = pytest.mark.slow("starts workers, some of which crash or hang")

PATIENCE_S = 300


def run(points_dir: Path, points: list[ReplayPoint], work: Work, **options: Any) -> list[Outcome]:
    points_dir.mkdir(parents=True, exist_ok=True)
    options = {"jobs": 2, "timeout_s": PATIENCE_S, "preload": fakes.PRELOAD, **options}
    return list(LocalExecutor(points_dir, work, **options).run(points))


def test_a_removed_results_directory_ends_the_run_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"points is gone: it was removed or moved while the run went on; run"):
        run(tmp_path / "points", fakes.points(2), fakes.remove_results)
    assert not (tmp_path / "points").exists()


def test_a_fork_server_that_dies_ends_the_run_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = multiprocessing.get_context("forkserver").Process
    monkeypatch.setattr(process, "start", Mock(side_effect=EOFError("unexpected EOF")))
    with pytest.raises(UserError, match=r"workers are forked from has ended \(out of memory\?\); run the same command"):
        run(tmp_path, fakes.points(1), fakes.measure)


def test_each_point_runs_in_a_process_of_its_own_and_prints_into_its_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes = run(tmp_path, fakes.points(4), fakes.measure)
    assert sorted((outcome.point.seed, outcome.status) for outcome in outcomes) == [(i, "ok") for i in range(4)]
    proofs = [load_record(outcome.folder).manifest["proof"] for outcome in outcomes]
    assert len({proof["pid"] for proof in proofs}) == 4
    (server,) = {proof["fork_server_pid"] for proof in proofs}
    assert server != os.getpid()
    assert {(proof["parent_pid"], proof["requests_before"]) for proof in proofs} == {(server, 0)}
    for outcome in outcomes:
        log = (outcome.folder / "log.txt").read_text()
        assert f"measuring seed {outcome.point.seed}" in log
        assert "a native library complains" in log
    assert "measuring" not in "".join(capfd.readouterr())


def test_a_spawned_worker_is_the_command_s_own_child_and_as_fresh(tmp_path: Path) -> None:
    outcomes = run(tmp_path, fakes.points(2), fakes.measure, spawn=True)
    proofs = [load_record(outcome.folder).manifest["proof"] for outcome in outcomes]
    assert len({proof["pid"] for proof in proofs}) == 2
    assert {(proof["parent_pid"], proof["fork_server_pid"]) for proof in proofs} == {(os.getpid(), None)}


REASONS = {1: "RuntimeError: the engine is lost", 2: "status 3", 3: "SIGKILL", 4: "longer than 3 s"}
"""Seed of a point that misbehaves -> the reason of its failure."""


def test_every_failure_has_its_reason_and_its_log_and_harms_no_other_point(tmp_path: Path) -> None:
    *ending, sleeping = fakes.points(5)
    outcomes = run(tmp_path, ending, fakes.misbehave) + run(tmp_path, [sleeping], fakes.misbehave, timeout_s=3)
    by_seed = {outcome.point.seed: outcome for outcome in outcomes}
    assert by_seed[0].status == "ok"
    for seed, reason in REASONS.items():
        failure = by_seed[seed]
        assert failure.status == "failed"
        assert reason in failure.reason
        assert failure.folder.name == f"{failure.point.id}.failed"
        assert load_record(failure.folder).manifest["error"] == failure.reason
        assert f"seed {seed} says something first" in (failure.folder / "log.txt").read_text()
    assert "Traceback" in (by_seed[1].folder / "log.txt").read_text()
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_failed_point_is_tried_again_and_its_failure_goes_when_it_works(tmp_path: Path) -> None:
    points = fakes.points(2)
    with claim(tmp_path, fakes.experiment(2)) as points_dir:
        run(points_dir, points, fakes.misbehave)
        rows = write_summary(tmp_path, [point.id for point in points])
        assert [row["status"] for row in rows] == ["ok", "failed"]
        assert "engine is lost" in rows[1]["error"]
        todo = unfinished(points_dir, points)
        assert [point.seed for point in todo] == [1]
        run(points_dir, todo, fakes.measure)
        assert [row["status"] for row in write_summary(tmp_path, [point.id for point in points])] == ["ok", "ok"]
        assert not list(points_dir.glob("*.failed"))


def test_an_invalid_point_fails_and_keeps_what_it_measured_out_of_the_results(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        (outcome,) = run(points_dir, fakes.points(1), fakes.late)
        assert (outcome.status, outcome.reason) == ("failed", "INVALID: the generator was late")
        record = load_record(outcome.folder)
        assert record.manifest["error"] == outcome.reason
        assert record.metrics["audio_ttfp_p50"]["n"] == len(record.table("requests")) == 1
        assert record.trace().header.hash == outcome.point.trace_hash
        (row,) = write_summary(tmp_path, [outcome.point.id])
        assert row["metrics"] == {}
        assert unfinished(points_dir, fakes.points(1)) == [outcome.point]


def test_the_fork_server_leaves_an_interrupt_to_the_command(tmp_path: Path) -> None:
    (before,) = run(tmp_path, fakes.points(1), fakes.measure)
    server = load_record(before.folder).manifest["proof"]["fork_server_pid"]
    os.kill(server, signal.SIGINT)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    after = run(tmp_path, fakes.points(2)[1:], fakes.measure)[0]
    assert load_record(after.folder).manifest["proof"]["fork_server_pid"] == server


def test_neither_the_number_of_jobs_nor_the_order_changes_a_byte(tmp_path: Path) -> None:
    points = fakes.points(3)
    one, three = tmp_path / "one", tmp_path / "three"
    run(one / "points", points, fakes.measure, jobs=1)
    run(three / "points", points[::-1], fakes.measure, jobs=3)
    assert measured(one) == measured(three) and len(measured(one)) == 3 * 5


def test_an_interrupt_stops_the_workers_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    diary = tmp_path / "diary"

    def interrupt(_: float) -> None:
        if diary.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, fakes.points(1), partial(fakes.counted, diary, 3600), watch=interrupt)
    (begun,) = diary.read_text().splitlines()
    assert not runs(int(begun.split()[2]))
    assert not list(tmp_path.glob(".tmp-*"))


COMMAND = """
import functools, json, resource, sys
from pathlib import Path
from harness.experiments.point import Point
from harness.records.results import claim, unfinished, write_summary
from harness.replays.executors.local import LocalExecutor
from tests.harness import fakes
from workloads.errors import UserError

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    if asked["file_bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_bytes"],) * 2)
    points = [Point.model_validate(point) for point in asked["points"]]
    out, work = Path(asked["out"]), getattr(fakes, asked["work"])
    if asked["work"] == "counted":
        work = functools.partial(work, Path(asked["diary"]), asked["pause_s"])
    with claim(out, fakes.experiment(len(points))) as points_dir:
        executor = LocalExecutor(points_dir, work, jobs=2, timeout_s=60, preload=asked["preload"])
        try:
            for outcome in executor.run(unfinished(points_dir, points)):
                print(outcome.point.id, outcome.status, flush=True)
        except UserError as error:
            sys.exit(str(error))
        write_summary(out, [point.id for point in points])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_does_not_wait_for_the_imports_of_the_fork_server(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module that it imports never ends."""
    monkeypatch.setenv("SLOW_PRELOAD", str(tmp_path / "imports"))
    process = _command(tmp_path / "out", fakes.points(1), preload=["tests.harness.slow_preload"])
    wait_until((tmp_path / "imports").exists)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == -number
    wait_until(lambda: not running(process.pid))


def test_a_run_killed_at_any_moment_resumes_and_repeats_nothing_finished(tmp_path: Path) -> None:
    out, undisturbed, points = tmp_path / "out", tmp_path / "undisturbed", fakes.points(6)

    def finished() -> dict[str, bytes]:
        """Return the manifests of finished points by their id."""
        return {path.parent.name: path.read_bytes() for path in out.glob("points/[!.]*/manifest.json")}

    for wanted in (0, 1, 3):
        process = _command(out, points, diary=tmp_path / "diary", pause_s=0.3)
        wait_until(lambda wanted=wanted: (out / "experiment.json").exists() and len(finished()) >= wanted)
        process.kill()
        process.wait()
        wait_until(lambda process=process: not running(process.pid))
    before = finished()
    assert len(before) >= 3
    assert _ended(_command(out, points)) == _ended(_command(undisturbed, points)) == (0, "")
    assert before.items() <= finished().items()
    assert not list((out / "points").glob(".tmp-*"))
    assert measured(undisturbed) == measured(out)
    assert len(json.loads((out / "summary.json").read_text())) == 6


@pytest.mark.parametrize(
    ("file_bytes", "work"), [(3000, "measure"), (1000, "end")], ids=["of a worker", "of the command"]
)
def test_without_room_a_run_stops_with_one_sentence_and_keeps_what_is_finished(
    tmp_path: Path, file_bytes: int, work: str
) -> None:
    """A limit on the size of files is met where a full disk is, and needs no disk of its own."""
    out, points = tmp_path / "out", fakes.points(4)
    assert _ended(_command(out, points[:2])) == (0, "")
    before = measured(out)
    status, output = _ended(_command(out, points, file_bytes=file_bytes, work=work))
    assert status == 1
    assert re.fullmatch(r"there is no room for the record of .*: finished points stay\.\n", output), output
    assert not list((out / "points").glob(".tmp-*")) and not list((out / "points").glob("*.failed"))
    assert measured(out) == before
    assert _ended(_command(out, points)) == (0, "")
    assert len(json.loads((out / "summary.json").read_text())) == 4


def _command(out: Path, points: list[ReplayPoint], **asked: Any) -> subprocess.Popen[str]:
    """A run of a session of its own. The points come from here: an edit of the code would give them other ids there.
    With a `diary` each notes itself there and takes `pause_s`; no file grows beyond `file_bytes`."""
    work = "counted" if "diary" in asked else "measure"
    asked = {"work": work, "preload": [], "file_bytes": 0, **asked, "out": out}
    asked["points"] = [point.model_dump(mode="json") for point in points]
    script = out.parent / "command.py"
    script.write_text(COMMAND)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asked, default=str))
    process.stdin.close()
    return process


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Status and what it said on stderr."""
    assert process.stderr is not None
    return process.wait(PATIENCE_S), process.stderr.read()


def running(session: int) -> set[int]:
    """Return the pids of a session that its first process, with this pid, began; no zombies."""
    found = set()
    for pid in psutil.pids():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(pid) == session and runs(pid):
                found.add(pid)
    return found
