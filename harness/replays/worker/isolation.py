"""Inside a worker: one point in a process that has served nothing, and that dies with its starter.

Where a fork server starts workers, it imports this module first, so `SERVER_PID` is the server's own pid in
every process forked from it; a spawned worker imports it itself and has the command as its parent. The kernel ends
a worker with its parent, and the server with the command (`harness.replays.worker.fork_server`), whatever they do then.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.clocks.parent import end_with_parent
from harness.events import point_progress
from harness.records.record import (
    ERROR,
    INVALID,
    LOG,
    InvalidPoint,
    Measurement,
    publish,
    temporary,
    write_failure,
    write_record,
)
from harness.replays.point import ReplayPoint
from workloads.atomic_file import is_full

Work = Callable[[ReplayPoint, Path], Measurement]
"""Measures one point inside a worker; what has no room in memory goes to the folder of its record."""
SERVER_PID = os.getpid()
NO_ROOM = os.EX_IOERR
"""Exit status of a worker that had no room for its record, not even for the reason."""


def run_point(
    work: Work, points_dir: Path, point: ReplayPoint, environment: dict[str, Any], share: point_progress.Share | None
) -> None:
    """Measure `point` and publish its record: the entry of a worker. On an exception leave a log and exit 1.

    `share` gets the share done. Without room for a record it leaves nothing and exits with `NO_ROOM`.
    """
    die_with_starter()
    if share is not None:
        point_progress.tell(share)
    folder = temporary(points_dir, point.id, os.getpid())
    try:
        _run_point(work, folder, points_dir / point.id, point, environment)
    except OSError as error:
        if not points_dir.is_dir():
            os._exit(1)  # the run's folder is gone, which the command says
        if not is_full(error):
            raise
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(NO_ROOM)  # what is still to be printed has no room either


def _run_point(work: Work, folder: Path, target: Path, point: ReplayPoint, environment: dict[str, Any]) -> None:
    started = datetime.now(UTC)
    folder.mkdir()
    send_output_to(folder / LOG)
    try:
        measurement = work(point, folder)
        server = {"pid": os.getpid(), "parent_pid": os.getppid(), "fork_server_pid": _fork_server_pid()}
        proof = {**server, **measurement.proof}
        write_record(folder, point, measurement, proof, environment, started)
    except InvalidPoint as error:
        traceback.print_exc()
        write_failure(folder, point, f"{INVALID}: {error}", environment, started, error.measurement)
        sys.exit(1)
    except BaseException as error:
        if is_full(error):
            raise
        traceback.print_exc()
        (folder / ERROR).write_text(f"{type(error).__name__}: {error}".splitlines()[0] + "\n")
        sys.exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    publish(folder, target)


def die_with_starter() -> None:
    """End this process when its parent ends (a fork server, or the command), however it ends."""
    starter = multiprocessing.parent_process()
    assert starter is not None and starter.pid is not None, "a worker is started through multiprocessing"
    end_with_parent(_fork_server_pid() or starter.pid)
    # Ctrl-C reaches the whole terminal group; the command decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def send_output_to(log: Path) -> None:
    """Point file descriptors 1 and 2 at `log`, so that native code and logging handlers write there too."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _fork_server_pid() -> int | None:
    """Return the fork server's process; None in a spawned process."""
    return None if os.getpid() == SERVER_PID else SERVER_PID
