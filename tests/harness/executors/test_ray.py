"""A real Ray cluster of several nodes on this machine: its records are those of a local run, also when nodes die."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.experiments.identity import PACKAGES
from harness.experiments.provenance import ROOT
from harness.experiments.run_order import Outcome
from harness.records.record import load_record
from harness.replays.executors.local import LocalExecutor
from harness.replays.executors.ray import CHANCES, RayExecutor, connected
from harness.replays.point import ReplayPoint
from harness.replays.worker.isolation import Work
from tests.builders import REHEARSE, free_ports
from tests.harness import fakes
from tests.harness.fakes import measured
from tests.waiting import runs, wait_until
from workloads.errors import UserError

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow("starts Ray")
PATIENCE_S = 120


@pytest.fixture(scope="module")
def client_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def cluster(client_port: int) -> Iterator[Any]:
    """A head without processors, which is also there for Ray's client, and nodes that find the tests."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        # One client in twenty is refused otherwise (ray issue 63202)
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        head = {"num_cpus": 0, "ray_client_server_port": client_port}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", str(cluster.address))
        wait_until(lambda: _open(client_port), PATIENCE_S)
        yield cluster
        cluster.shutdown()


def _open(port: int) -> bool:
    with suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@pytest.fixture
def node(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Adds a node of one processor, until the test is over."""
    added = []

    def add(name: str, **options: Any) -> Any:
        added.append(cluster.add_node(num_cpus=1, node_name=name, **options))
        return added[-1]

    yield add
    for each in added:
        cluster.remove_node(each)


def run(points_dir: Path, points: list[ReplayPoint], work: Work, **options: Any) -> list[Outcome]:
    points_dir.mkdir(parents=True, exist_ok=True)
    options = {"jobs": None, "timeout_s": PATIENCE_S, "preload": fakes.PRELOAD, **options}
    with connected("auto"):
        return list(RayExecutor(points_dir, work, **options).run(points))


def test_records_are_those_of_a_local_run_each_from_a_fresh_worker(tmp_path: Path, node: Callable[..., Any]) -> None:
    node("one")
    node("two")
    points, here, there = fakes.points(6), tmp_path / "here" / "points", tmp_path / "there" / "points"
    here.mkdir(parents=True)
    list(LocalExecutor(here, fakes.measure, jobs=2, timeout_s=PATIENCE_S, preload=fakes.PRELOAD).run(points))
    run(there, points, fakes.measure)
    assert measured(here.parent) == measured(there.parent)
    manifests = [load_record(there / point.id).manifest for point in points]
    assert [manifest["order"] for manifest in manifests] == [1, 2, 3, 4, 5, 6]
    proofs = [manifest["proof"] for manifest in manifests]
    assert len({proof["pid"] for proof in proofs}) == 6
    assert {proof["parent_pid"] for proof in proofs} == {proof["fork_server_pid"] for proof in proofs}
    assert "measuring seed 0" in (there / points[0].id / "log.txt").read_text()


def test_a_worker_whose_server_a_dying_node_has_ended_is_no_failure(tmp_path: Path, node: Callable[..., Any]) -> None:
    """Ray ends what its worker started before it ends the worker, which could still say that its point failed."""
    node("one")
    diary = tmp_path / "diary"
    (outcome,) = run(tmp_path / "points", fakes.points(1), partial(fakes.lose_server_once, diary))
    assert outcome.status == "ok"
    assert len(diary.read_text().splitlines()) == 2


def test_a_point_that_ends_its_machine_is_given_up(tmp_path: Path, node: Callable[..., Any]) -> None:
    node("one")
    (outcome,) = run(tmp_path, fakes.points(1), fakes.lose_slot)
    assert outcome.status == "failed"
    assert outcome.reason.startswith(f"its worker was lost {CHANCES} times, the last time on node one (")
    manifest = load_record(outcome.folder).manifest
    assert manifest["order"] == 1 and manifest["machine"]["cores"] >= 1 and len(manifest["load_average"]) == 3


def test_an_interrupt_ends_the_workers_and_leaves_nothing(tmp_path: Path, node: Callable[..., Any]) -> None:
    node("one")
    diary = tmp_path / "diary"

    def interrupt(_: float) -> None:
        if diary.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "points", fakes.points(2), partial(fakes.counted, diary, 3600), watch=interrupt)
    (begun,) = diary.read_text().splitlines()
    wait_until(lambda: not runs(int(begun.split()[2])), PATIENCE_S)
    assert not list((tmp_path / "points").iterdir())


def test_a_node_with_other_code_is_refused_by_its_name(
    tmp_path: Path, node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where Ray looks for code first
    other = tmp_path / "other"
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "harness" / "replays" / "worker" / "replay.py").open("a") as file:
        file.write("\nchanged = True\n")
    path = os.pathsep.join([str(other), os.environ.get("PYTHONPATH", "")])
    node("the_other", env_vars={"PYTHONPATH": path})
    with pytest.raises(UserError, match=r"^node the_other \(.*\) of the Ray cluster has other code than"):
        run(tmp_path / "points", fakes.points(1), fakes.measure)
    assert not list((tmp_path / "points").iterdir())


def test_without_processors_there_is_nothing_to_wait_for(tmp_path: Path, cluster: Any) -> None:
    with pytest.raises(UserError, match="has no processors"):
        run(tmp_path, fakes.points(1), fakes.measure)


def test_a_client_whose_server_dies_connects_again(
    client_port: int, cluster: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy head sometimes loses the process that it starts for a client."""
    monkeypatch.setenv("RAY_CLIENT_RECONNECT_GRACE_PERIOD", "1")  # for which Ray would keep the lost one
    killed: list[int] = []

    def kill() -> None:
        killed.append(wait_until(lambda: _pids("specific-server"), PATIENCE_S)[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with connected(f"ray://127.0.0.1:{client_port}"):
        alive = [node for node in ray.nodes() if node["Alive"]]
    killer.join()
    assert len(killed) == 1 and alive
    (message,) = [each.getMessage() for each in caplog.records if "asked again" in each.getMessage()]
    assert "Initialization failure from server: " in message


def _pids(argument: str) -> list[int]:
    """Return the processes that this one has started with this argument."""
    pids = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(argument in part for part in each.cmdline()):
                pids.append(each.pid)
    return pids


YAML = """
name: many
engines: [vllm_omni, vllm_omni_wo, liveserve]
workload: voice
set: {sessions: 2, turns: 2}
grid: {c: [1, 2], p: [0, 0.7]}
seeds: 1
"""


def test_the_command_ends_in_the_same_bytes_though_a_node_is_lost(
    tmp_path: Path, client_port: int, node: Callable[..., Any]
) -> None:
    """12 points on vLLM's own scheduler, through Ray's client; one of two nodes vanishes."""
    (tmp_path / "many.yaml").write_text(YAML)
    raylets = [node(name).all_processes["raylet"][0].process.pid for name in ("one", "two")]
    address = f"ray://127.0.0.1:{client_port}"
    assert _command(tmp_path, "here", "--jobs", "2").wait() == 0
    there = _command(tmp_path, "there", "--executor", address)
    measured_there = (tmp_path / "there" / "points").glob
    wait_until(lambda: there.poll() is not None or len(list(measured_there("[!.]*"))) >= 2, 600)
    gone = psutil.Process(raylets[1])
    for each in (gone, *gone.children(recursive=True)):  # its workers would serve on until they miss it
        each.kill()
    status, output = there.wait(), (tmp_path / "there.txt").read_text()
    assert status == 0, output
    assert "was lost; " in output
    assert len(list((tmp_path / "there" / "points").glob("[!.]*"))) == 12
    assert measured(tmp_path / "here") == measured(tmp_path / "there")


def _command(place: Path, name: str, *options: str) -> subprocess.Popen[bytes]:
    """`rehearse run`, which says what it says in NAME.txt."""
    command = [*REHEARSE, "run", "many.yaml", "--out", name, *options]
    with (place / f"{name}.txt").open("wb") as log:
        return subprocess.Popen(command, cwd=place, stdout=log, stderr=subprocess.STDOUT)
