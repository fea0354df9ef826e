"""Inside a worker: one point in a process that has served nothing, and that dies with its starter.

Where a fork server starts workers, it imports this module first, so `SERVER_PID` is the server's own pid in
every process forked from it; a spawned worker imports it itself and has the command as its parent. A worker
with another parent has outlived whoever started it, and stops.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.experiment import Point
from harness.record import ERROR, LOG, InvalidPoint, Work, publish, temporary, write_failure, write_record

SERVER_PID = os.getpid()
_PR_SET_PDEATHSIG = 1


def run_point(work: Work, points_dir: Path, point: Point, environment: dict[str, Any]) -> None:
    """Entry of a worker: measure `point` and publish its record; on an exception leave a log and exit 1."""
    die_with_starter()
    started = datetime.now(UTC)
    folder = temporary(points_dir, point.id, os.getpid())
    folder.mkdir(parents=True)
    send_output_to(folder / LOG)
    try:
        measurement = work(point)
        server = {"pid": os.getpid(), "parent_pid": os.getppid(), "fork_server_pid": _fork_server_pid()}
        proof = {**server, **measurement.proof}
        write_record(folder, point, measurement, proof, environment, started)
    except InvalidPoint as error:
        traceback.print_exc()
        write_failure(folder, point, f"INVALID: {error}", environment, started, error.measurement)
        sys.exit(1)
    except BaseException as error:
        traceback.print_exc()
        (folder / ERROR).write_text(f"{type(error).__name__}: {error}".splitlines()[0] + "\n")
        sys.exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    publish(folder, points_dir / point.id)


def die_with_starter() -> None:
    """End this process when its parent ends (a fork server, or the command) or the command does, however they end.

    The kernel's death signal covers the parent. The command is not the parent of a forked worker, which holds
    the pipe that keeps the server alive, so a thread waits for the command. The pid check closes the gap
    before the death signal was set.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    starter = multiprocessing.parent_process()
    assert starter is not None, "a worker is started through multiprocessing"
    if os.getppid() != (_fork_server_pid() or starter.pid):
        os._exit(1)
    threading.Thread(target=_follow, args=(starter,), name="follow-starter", daemon=True).start()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole terminal group; the command decides
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
    """None in a spawned process."""
    return None if os.getpid() == SERVER_PID else SERVER_PID


def _follow(starter: Any) -> None:
    starter.join()
    os.kill(os.getpid(), signal.SIGKILL)
