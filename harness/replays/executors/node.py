"""The work of a machine of a cluster: it checks that it has the code that was asked for, and measures points.

Records are written into a temporary folder of the machine and go home as bytes (`Slot`, `receive`).
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from harness.experiments.point import Point
from harness.experiments.run_order import Order, Outcome, load_average
from harness.records.record import failed, publish, temporary, write_failure
from harness.replays.executors import WATCH_S, no_room
from harness.replays.executors.local import LocalExecutor
from harness.replays.expand import code_of
from harness.replays.point import ReplayPoint
from harness.replays.worker import fork_server
from harness.replays.worker.fork_server import PRELOAD
from harness.replays.worker.isolation import Work
from workloads.atomic_file import is_full
from workloads.errors import UserError

SLOT = "rehearsal-slot-"


@dataclass(frozen=True)
class Task:
    """The task of every machine: the work of a point, all points of the run in their order, and the limit of one.
    `preload`: see `LocalExecutor`."""

    work: Work
    order: Order
    timeout_s: float
    preload: Sequence[str] = (PRELOAD,)

    def refusal(self) -> str:
        """Return why this machine would measure something else than asked for, as the end of a sentence; empty if it
        would not.

        The hash of a point's code covers everything that can change its result, the versions of vLLM and NumPy
        included.
        """
        one_of_each = {point.code_hash: point for point in self.order.points}
        for expected, point in one_of_each.items():
            try:
                same = code_of(point) == expected
            except (UserError, LookupError, ImportError, ValueError):
                return f"has no {point.engine} or no {point.workload} as this machine has"
            if not same:
                return "has other code than this machine, or another version of vLLM or NumPy"
        return ""


@dataclass(frozen=True)
class Ended:
    """The end of a point on another machine, and the files of its record."""

    point: Point
    status: Literal["ok", "failed"]
    files: dict[str, bytes]
    wall_s: float
    reason: str


class Lost(Exception):
    """The machine has ended the fork server, as it does when it goes down. The point is not at fault."""


class Slot:
    """Room for one point at a time on this machine; the fork server stays, so vLLM is imported once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._folder, self._lock = _claimed_folder()
        self._share = 0.0
        self._local = LocalExecutor(
            self._folder,
            task.work,
            jobs=1,
            timeout_s=task.timeout_s,
            order=task.order,
            preload=task.preload,
            watch=self._see,
        )

    def environment(self) -> dict[str, Any]:
        """Return the environment as records have it, with the machine's load average now."""
        return {**self._local.environment, "load_average": load_average()}

    def measure(self, point: ReplayPoint | None) -> Ended | float:
        """Start `point`, or go on with the running one. Return its end, or after `WATCH_S` the share done. UserError
        when there is no room for its record; `Lost`."""
        if point is not None:
            self._share = 0.0
            self._local.start(point, self._task.order)
        for outcome in self._local.ended(WATCH_S):
            if outcome.status == "failed" and fork_server.was_lost():
                raise Lost
            files = {path.name: path.read_bytes() for path in outcome.folder.iterdir()}
            shutil.rmtree(outcome.folder)
            return Ended(outcome.point, outcome.status, files, outcome.wall_s, outcome.reason)
        return self._share

    def _see(self, share: float) -> None:
        self._share = share

    def stop(self) -> None:
        """End the running point, and leave nothing of it."""
        self._local.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _claimed_folder() -> tuple[Path, int]:
    """Make a temporary folder, locked by the descriptor until this process ends. Folders of killed processes are
    removed."""
    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{SLOT}*"):
        with suppress(OSError):
            os.close(_locked(left))
            shutil.rmtree(left, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{SLOT}", dir=place))
    lock = _locked(draft)
    return draft.rename(place / draft.name[1:]), lock  # only now would others look at it


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def receive(ended: Ended, points_dir: Path) -> Outcome:
    """Publish a record that came from another machine. UserError when there is no room for it."""
    point = ended.point
    folder = temporary(points_dir, point.id, os.getpid())
    try:
        folder.mkdir()
        for name, content in ended.files.items():
            (folder / Path(name).name).write_bytes(content)
        target = _take_the_place(folder, point, points_dir, ended.status == "ok")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not is_full(error):
            raise
        raise no_room(point, points_dir) from None
    return Outcome(point, ended.status, target, ended.wall_s, ended.reason)


def give_up(point: ReplayPoint, reason: str, environment: dict[str, Any], begun: datetime, points_dir: Path) -> Outcome:
    """Record a point as failed whose worker was lost together with its log."""
    folder = temporary(points_dir, point.id, os.getpid())
    write_failure(folder, point, reason, environment, begun)
    target = _take_the_place(folder, point, points_dir, ok=False)
    return Outcome(point, "failed", target, (datetime.now(UTC) - begun).total_seconds(), reason)


def _take_the_place(folder: Path, point: Point, points_dir: Path, ok: bool) -> Path:
    failure = failed(points_dir, point.id)
    if failure.exists():
        shutil.rmtree(failure)
    target = points_dir / point.id if ok else failure
    publish(folder, target)
    return target
