"""Every point has a fresh process; one that fails says why and harms no other; none outlives the command."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.experiment import Point
from harness.record import Work, load_record
from harness.results import claim, unfinished, write_summary
from harness.workers import LocalExecutor, Outcome
from tests.harness import fakes

PATIENCE_S = 60


def run(
    points_dir: Path, points: list[Point], work: Work, timeout_s: float = PATIENCE_S, jobs: int = 2
) -> list[Outcome]:
    points_dir.mkdir(parents=True, exist_ok=True)
    return list(LocalExecutor(points_dir, work, jobs=jobs, timeout_s=timeout_s, preload=()).run(points))


def test_each_point_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    outcomes = run(tmp_path, fakes.points(4), fakes.measure)
    assert sorted(outcome.point.seed for outcome in outcomes) == [0, 1, 2, 3]
    assert {outcome.status for outcome in outcomes} == {"ok"}
    proofs = [load_record(outcome.folder).manifest["proof"] for outcome in outcomes]
    assert len({proof["pid"] for proof in proofs}) == 4
    (server,) = {proof["fork_server_pid"] for proof in proofs}
    assert server != os.getpid()
    assert {proof["parent_pid"] for proof in proofs} == {server}
    assert all(proof["requests_before"] == 0 for proof in proofs)


def test_a_spawned_worker_is_the_command_s_own_child_and_as_fresh(tmp_path: Path) -> None:
    points = fakes.points(2)
    outcomes = LocalExecutor(tmp_path, fakes.measure, jobs=1, timeout_s=PATIENCE_S, spawn=True).run(points)
    proofs = [load_record(outcome.folder).manifest["proof"] for outcome in outcomes]
    assert len({proof["pid"] for proof in proofs}) == 2
    assert {(proof["parent_pid"], proof["fork_server_pid"]) for proof in proofs} == {(os.getpid(), None)}


def test_a_worker_prints_into_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (outcome,) = run(tmp_path, fakes.points(1), fakes.measure)
    log = (outcome.folder / "log.txt").read_text()
    assert "measuring seed 0" in log and "a native library complains" in log
    assert "measuring" not in "".join(capfd.readouterr())


def test_failures_are_recorded_with_log_and_reason_and_the_others_go_on(tmp_path: Path) -> None:
    points = fakes.points(5)
    outcomes = {
        outcome.point.seed: outcome for outcome in run(tmp_path, points, fakes.misbehave, timeout_s=3)
    }
    assert outcomes[0].status == "ok"
    reasons = {1: "RuntimeError: the engine is lost", 2: "status 3", 3: "SIGKILL", 4: "longer than 3 s"}
    for seed, reason in reasons.items():
        outcome = outcomes[seed]
        assert outcome.status == "failed" and reason in outcome.reason
        assert outcome.folder == tmp_path / f"{points[seed].id}.failed"
        assert load_record(outcome.folder).manifest["error"] == outcome.reason
        assert f"seed {seed} says something first" in (outcome.folder / "log.txt").read_text()
    assert "Traceback" in (outcomes[1].folder / "log.txt").read_text()
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
        assert [row["status"] for row in write_summary(tmp_path, [point.id for point in points])] == [
            "ok",
            "ok",
        ]
        assert not list(points_dir.glob("*.failed"))


def test_an_invalid_point_is_a_failure_that_keeps_what_it_measured(tmp_path: Path) -> None:
    with claim(tmp_path, fakes.experiment(1)) as points_dir:
        (outcome,) = run(points_dir, fakes.points(1), fakes.late)
        assert (outcome.status, outcome.reason) == ("failed", "INVALID: the generator was late")
        record = load_record(outcome.folder)
        assert record.manifest["error"] == outcome.reason and "wall_s" in record.manifest["cost"]
        assert record.metrics["audio_ttfp_p50"]["n"] == 1 and len(record.table("requests")) == 1
        assert record.trace().header.hash == outcome.point.trace_hash
        (row,) = write_summary(tmp_path, [outcome.point.id])
        assert row["metrics"] == {}  # nobody takes its numbers for results
        assert unfinished(points_dir, fakes.points(1)) == [outcome.point]


def test_neither_the_number_of_jobs_nor_the_order_changes_a_byte(tmp_path: Path) -> None:
    points = fakes.points(3)
    run(tmp_path / "one", points, fakes.measure, jobs=1)
    run(tmp_path / "three", points[::-1], fakes.measure, jobs=3)
    for point in points:
        for name in ("summary.json", "requests.parquet", "events.parquet", "trace.parquet"):
            assert (tmp_path / "one" / point.id / name).read_bytes() == (
                tmp_path / "three" / point.id / name
            ).read_bytes()


def test_an_interrupt_stops_the_workers_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    work = functools.partial(fakes.counted, diary, 3600)
    outcomes = LocalExecutor(tmp_path, work, jobs=1, timeout_s=PATIENCE_S, preload=()).run(fakes.points(1))

    def interrupt(*_: object) -> None:
        if diary.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(outcomes)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not _alive(_pids(diary))
    assert not list(tmp_path.glob(".tmp-*"))


COMMAND = """
import functools, json, sys
from pathlib import Path
from harness.experiment import Point
from harness.results import claim, unfinished, write_summary
from harness.workers import LocalExecutor
from tests.harness import fakes

if __name__ == "__main__":
    out, diary, pause_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    points = [Point.model_validate(point) for point in json.load(sys.stdin)]
    with claim(out, fakes.experiment(6)) as points_dir:
        work = functools.partial(fakes.counted, diary, pause_s)
        executor = LocalExecutor(points_dir, work, jobs=2, timeout_s=60, preload=())
        for outcome in executor.run(unfinished(points_dir, points)):
            print(outcome.point.id, outcome.status, flush=True)
        write_summary(out, [point.id for point in points])
"""


def test_workers_die_with_a_killed_command(tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    diary = tmp_path / "diary"
    process = _command(fakes.points(2), script, tmp_path / "out", diary, "3600")
    _wait(lambda: diary.exists() and len(_pids(diary)) == 2)
    assert len(_alive(_pids(diary))) == 2
    process.kill()
    process.wait()
    _wait(lambda: not _alive(_pids(diary)))


def test_a_run_killed_at_any_moment_resumes_and_repeats_nothing_finished(tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    out, diary = tmp_path / "out", tmp_path / "diary"
    points = fakes.points(6)

    def finished() -> set[str]:
        return {point.id for point in points if (out / "points" / point.id).exists()}

    for wanted in (1, 3):
        process = _command(points, script, out, diary, "0.3")
        _wait(lambda wanted=wanted: len(finished()) >= wanted)
        process.kill()
        process.wait()
        _wait(lambda: not _alive(_pids(diary)))
    before = finished()
    manifests = {id: (out / "points" / id / "manifest.json").read_bytes() for id in before}
    assert 3 <= len(before) < 6
    assert _command(points, script, out, diary, "0").wait(PATIENCE_S) == 0

    assert finished() == {point.id for point in points}
    assert not list((out / "points").glob(".tmp-*"))
    for id, manifest in manifests.items():
        assert (out / "points" / id / "manifest.json").read_bytes() == manifest
    undisturbed = tmp_path / "undisturbed"
    assert _command(points, script, undisturbed, tmp_path / "other diary", "0").wait(PATIENCE_S) == 0
    assert (undisturbed / "summary.json").read_bytes() == (out / "summary.json").read_bytes()
    assert len(json.loads((out / "summary.json").read_text())) == 6


def _command(
    points: list[Point], script: Path, out: Path, diary: Path, pause_s: str
) -> subprocess.Popen[bytes]:
    """The points come from here: expanded there, an edit of the code in between would give them other ids."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(script), str(out), str(diary), pause_s],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps([point.model_dump(mode="json") for point in points]).encode())
    process.stdin.close()
    return process


def _wait(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.01)


def _pids(diary: Path) -> set[int]:
    return {int(line.split()[2]) for line in diary.read_text().splitlines()}


def _alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie that nobody has collected yet does not."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            alive.add(pid)
    return alive
