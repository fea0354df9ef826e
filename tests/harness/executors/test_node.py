"""Points on another machine and their records that come back, without a cluster."""

import resource
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from harness.experiments.experiment import Experiment
from harness.experiments.provenance import environment
from harness.experiments.run_order import Order
from harness.records.record import load_record
from harness.replays.executors.local import LocalExecutor
from harness.replays.executors.node import SLOT, Ended, Slot, Task, give_up, receive
from harness.replays.executors.place import Place
from harness.replays.expand import code_of, expand
from harness.replays.point import ReplayPoint
from harness.replays.worker.isolation import Work
from tests.harness import fakes
from tests.harness.fakes import measured
from workloads.errors import UserError


def task(work: Work, points: list[ReplayPoint], timeout_s: float = 60) -> Task:
    return Task(work, Order(tuple(points)), timeout_s, preload=fakes.PRELOAD)


def sent_home(slot: Slot, point: ReplayPoint) -> Ended:
    answer = slot.measure(point)
    while not isinstance(answer, Ended):
        answer = slot.measure(None)
    return answer


def test_a_record_that_came_home_is_the_one_that_is_measured_here(tmp_path: Path) -> None:
    points = fakes.points(3)
    here, there = tmp_path / "here" / "points", tmp_path / "there" / "points"
    here.mkdir(parents=True)
    there.mkdir(parents=True)
    list(LocalExecutor(here, fakes.measure, jobs=1, timeout_s=60, preload=fakes.PRELOAD).run(points))
    slot = Slot(task(fakes.measure, points))
    outcomes = [receive(sent_home(slot, point), there) for point in points]
    slot.stop()
    assert measured(here.parent) == measured(there.parent)
    manifests = [load_record(outcome.folder).manifest for outcome in outcomes]
    assert [manifest["order"] for manifest in manifests] == [1, 2, 3]
    assert len({manifest["proof"]["pid"] for manifest in manifests}) == 3
    assert len({manifest["proof"]["fork_server_pid"] for manifest in manifests}) == 1


def test_a_slot_says_how_far_a_point_is_and_leaves_nothing_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    points = fakes.points(1)
    slot = Slot(task(partial(fakes.measure_once_seen, tmp_path / "never seen"), points))
    share = slot.measure(points[0])
    while share == 0.0:
        share = slot.measure(None)
    assert share == 0.5
    slot.stop()
    assert not list(tmp_path.iterdir())


def test_a_new_slot_removes_the_folder_of_a_killed_one_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{SLOT}left"
    left.mkdir()
    slots = [Slot(task(fakes.measure, fakes.points(1))) for _ in range(2)]
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 2
    for slot in slots:
        slot.stop()
    assert not list(tmp_path.iterdir())


def test_a_failure_comes_home_with_its_log_and_goes_when_the_point_works(tmp_path: Path) -> None:
    points = fakes.points(2)
    slot = Slot(task(fakes.misbehave, points))
    failure = receive(sent_home(slot, points[1]), tmp_path)
    slot.stop()
    assert (failure.status, failure.reason) == ("failed", "RuntimeError: the engine is lost")
    assert failure.folder == tmp_path / f"{points[1].id}.failed"
    assert "Traceback" in (failure.folder / "log.txt").read_text()
    slot = Slot(task(fakes.measure, points))
    assert receive(sent_home(slot, points[1]), tmp_path).status == "ok"
    slot.stop()
    assert [path.name for path in tmp_path.iterdir()] == [points[1].id]


def test_without_room_at_home_nothing_is_left_of_a_record(tmp_path: Path) -> None:
    ended = Ended(fakes.points(1)[0], "ok", {"manifest.json": bytes(5000)}, 1.0, "")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(UserError, match="there is no room for the record of"):
            receive(ended, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_point_that_was_lost_is_a_failure(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    facts = {**environment(), "order": 1, "order_seed": None, "load_average": [0.0, 0.0, 0.0]}
    outcome = give_up(point, "its node is gone", facts, datetime.now(UTC), tmp_path)
    record = load_record(outcome.folder)
    assert (record.manifest["error"], record.manifest["order"]) == ("its node is gone", 1)
    assert [path.name for path in tmp_path.iterdir()] == [f"{point.id}.failed"]


def test_a_machine_with_other_code_or_without_the_system_is_refused() -> None:
    point = fakes.points(1)[0]
    assert task(fakes.measure, [point]).refusal() == ""
    older = point.model_copy(update={"code_hash": "0" * 64})
    assert "has other code" in task(fakes.measure, [point, older]).refusal()
    foreign = older.model_copy(update={"engine": "somebody_s"})
    assert task(fakes.measure, [foreign]).refusal().startswith("has no somebody_s or no voice")


@pytest.mark.parametrize(
    ("engine", "workload", "settings"),
    [
        ("liveserve", "voice", {}),
        ("vllm_omni", "voice", {"scheduler": "liveserve"}),
        ("vllm_omni", "voice", {"kv": "liveserve"}),
        ("metronome", "metronome", {"duration_s": 8}),
    ],
)
def test_the_hash_of_a_point_s_code_is_found_again_from_the_point(engine: str, workload: str, settings: dict) -> None:
    (point,) = expand(Experiment(name="x", engines=[engine], workload=workload, set={"sessions": 1, **settings}))
    assert code_of(point) == point.code_hash


@pytest.mark.parametrize("device", ["paced", "live", "cuda"])
def test_points_of_real_devices_are_not_taken_to_a_cluster(device: str) -> None:
    points = [fakes.points(1)[0].model_copy(update={"device": device})]
    Place().check(points)
    Place("auto").check(fakes.points(1))
    with pytest.raises(UserError, match=f"is for device virtual, .*; device {device} is measured on"):
        Place("auto").check(points)


def test_without_ray_a_cluster_is_refused_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs the package ray, .*\[ray\]"), Place("auto").opened():
        pass
