"""A real Slurm on this machine (munge, a controller, two nodes): one array, records as of a local run, nothing left."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.executors import Outcome
from harness.executors.local import LocalExecutor
from harness.executors.slurm import SlurmExecutor, check
from harness.experiments.experiment import Point
from harness.records.provenance import ROOT
from harness.records.record import Work, load_record
from tests.builders import free_ports
from tests.harness import fakes
from tests.selftest.kills import measured
from tests.waiting import runs, wait_until
from workloads.errors import UserError

pytest.importorskip("submitit")
pytestmark = pytest.mark.slow
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
if lacking := [
    name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name, path=PATH) is None
]:
    pytest.skip(f"this machine has no {lacking[0]} (slurm-wlm, munge)", allow_module_level=True)
PATIENCE_S = 120

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=main Nodes=n0,n1 Default=YES State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two nodes of one processor each, which find the tests; every daemon in the foreground, to be ended."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    folder.chmod(0o755)
    text = CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0],
        ports=free_ports(3),
        user=getpass.getuser(),
        folder=folder,
    )
    (folder / "slurm.conf").write_text(text)
    files = {
        "socket": "munge.socket",
        "key-file": "munge.key",
        "pid-file": "munge.pid",
        "seed-file": "munge.seed",
    }
    munged = [
        "munged",
        "--foreground",
        "--force",
        *(f"--{name}={folder / file}" for name, file in files.items()),
    ]
    daemons = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", PATH)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        try:
            for command in (
                munged,
                ["slurmctld", "-D"],
                ["slurmd", "-D", "-N", "n0"],
                ["slurmd", "-D", "-N", "n1"],
            ):
                with (folder / "daemons.log").open("ab") as said:
                    daemons.append(subprocess.Popen(command, stdout=said, stderr=said))
                wait_until((folder / "munge.socket").exists)
            wait_until(lambda: _said("sinfo", "--noheader", "--format", "%t").split() == ["idle"])
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait()


def run(out: Path, points: list[Point], work: Work, **options: Any) -> list[Outcome]:
    (out / "points").mkdir(parents=True, exist_ok=True)
    options = {
        "options": {"partition": "main"},
        "jobs": None,
        "timeout_s": PATIENCE_S,
        "preload": (),
        **options,
    }
    return list(SlurmExecutor(out / "points", work, **options).run(points))


@pytest.mark.parametrize("jobs", [1, 2])
def test_records_are_as_of_a_local_run_each_from_a_fresh_worker(
    slurm: None, tmp_path: Path, jobs: int
) -> None:
    points, here, there = fakes.points(6), tmp_path / "here", tmp_path / "there"
    (here / "points").mkdir(parents=True)
    list(LocalExecutor(here / "points", fakes.measure, jobs=1, timeout_s=PATIENCE_S, preload=()).run(points))
    outcomes = run(there, points, partial(fakes.counted, tmp_path / "diary", 0), jobs=jobs)
    assert {(each.folder, each.status) for each in outcomes} == {
        (there / "points" / p.id, "ok") for p in points
    }
    assert measured(here) == measured(there)
    assert len((tmp_path / "diary").read_text().splitlines()) == 12, "each began once, and ended once"
    manifests = [load_record(there / "points" / point.id).manifest for point in points]
    assert [manifest["order"] for manifest in manifests] == [1, 2, 3, 4, 5, 6]
    assert len({manifest["proof"]["pid"] for manifest in manifests}) == 6
    assert len({manifest["proof"]["fork_server_pid"] for manifest in manifests}) <= jobs
    assert [path.name for path in there.iterdir()] == ["points"] and _left() == ""


def test_failures_are_recorded_with_log_and_reason(slurm: None, tmp_path: Path) -> None:
    fakes.assert_misbehaved(run(tmp_path, fakes.points(5), fakes.misbehave, timeout_s=3))


def test_closing_it_cancels_the_array_and_leaves_nothing(slurm: None, tmp_path: Path) -> None:
    diary = tmp_path / "diary"

    def interrupt(_: float) -> None:
        if diary.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", fakes.points(2), partial(fakes.counted, diary, 3600), watch=interrupt)
    pids = [int(line.split()[2]) for line in diary.read_text().splitlines()]
    assert _left() == ""
    wait_until(lambda: not any(map(runs, pids)))
    assert not list((tmp_path / "out" / "points").iterdir())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["points"]


def test_the_point_of_a_cancelled_task_is_failed_and_the_others_go_on(slurm: None, tmp_path: Path) -> None:
    points, diary = fakes.points(4), tmp_path / "diary"
    (tmp_path / "out" / "points").mkdir(parents=True)

    def cancel(_: float) -> None:
        """The task in which the point of seed 0 is stuck."""
        if diary.exists() and f"begin {points[0].id}" in diary.read_text():
            number = (tmp_path / "out/slurm/claims" / points[0].id).read_text()
            job = (tmp_path / "out/slurm/job").read_text()
            subprocess.run(["scancel", f"{job}_{number}"], check=True)

    outcomes = run(tmp_path / "out", points, partial(fakes.stuck_once, diary), jobs=2, watch=cancel)
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    assert [(failure.point, len(outcomes)) for failure in failures] == [(points[0], 4)]
    assert "was ended: " in failures[0].reason and "CANCELLED" in failures[0].reason
    manifest = load_record(failures[0].folder).manifest
    assert manifest["order"] == 1 and manifest["machine"]["cores"] >= 1
    assert (tmp_path / "out" / "slurm" / "submitted").exists(), "the logs of what was lost are kept"


def test_an_array_left_by_a_killed_run_is_ended_first(slurm: None, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    work = partial(fakes.counted, diary, 3600)
    first = SlurmExecutor(
        tmp_path / "out" / "points",
        work,
        options={"partition": "main"},
        jobs=1,
        timeout_s=PATIENCE_S,
        preload=(),
    )
    (tmp_path / "out" / "points").mkdir(parents=True)
    forgotten = os.fork()
    if forgotten == 0:
        list(first.run(fakes.points(1)))
        os._exit(0)
    wait_until(diary.exists)
    os.kill(forgotten, 9)
    os.waitpid(forgotten, 0)
    assert _left()
    (outcome,) = run(tmp_path / "out", fakes.points(1), fakes.measure)
    assert outcome.status == "ok" and _left() == ""
    wait_until(lambda: not runs(int(diary.read_text().split()[2])))


def test_a_node_with_other_code_is_refused(slurm: None, tmp_path: Path) -> None:
    points = [fakes.points(1)[0].model_copy(update={"code_hash": "0" * 64})]
    with pytest.raises(UserError, match=r"^node \S+ has other code than this machine"):
        run(tmp_path, points, fakes.measure)
    assert not list((tmp_path / "points").iterdir()) and _left() == ""


def test_what_slurm_would_not_take_is_refused_before_anything_is_submitted(slurm: None) -> None:
    check({"partition": "main", "time": "60"})
    for options in ({"partition": "nowhere"}, {"time": "soon"}, {"flavour": "sweet"}):
        with pytest.raises(UserError, match="Slurm would not take the job"):
            check(options)
    assert _left() == ""


def _left() -> str:
    return _said("squeue", "--noheader")


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout
