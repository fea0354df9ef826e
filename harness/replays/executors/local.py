"""Run points in fresh workers: each in a process of its own, forked from a server that has served nothing, or spawned.

A point that raises, dies or exceeds its time becomes a failed record with its log, and the others go on.
"""

import errno
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.clocks.ctrl_c import deferred_ctrl_c
from harness.events.point_progress import Share
from harness.experiments import provenance
from harness.experiments.run_order import Order, Outcome
from harness.records.record import ERROR, MANIFEST, failed, is_failure, publish, temporary, write_failure
from harness.replays.executors import WATCH_S, WorkerExecutor, no_room
from harness.replays.point import ReplayPoint
from harness.replays.worker import fork_server, isolation, vllm_release
from workloads.atomic_file import is_full
from workloads.errors import UserError


@dataclass
class _Running:
    point: ReplayPoint
    process: BaseProcess
    environment: dict[str, Any]
    started: datetime
    begin: float
    share: Share | None


@dataclass(eq=False, kw_only=True)
class LocalExecutor(WorkerExecutor):
    """Processes on this machine, `jobs` at a time, each limited to `timeout_s` seconds of wall-clock time.

    UserError when there is no room for a record; finished records stay. `run` is a loop over `start` and `ended`, for
    callers that get their points one by one. `spawn`: start every worker from nothing instead of forking it, as real
    devices need (threads and device contexts do not survive a fork).
    """

    jobs: int
    spawn: bool = False

    def __post_init__(self) -> None:
        self.environment = provenance.environment()
        self._running: list[_Running] = []
        self._context: Any = multiprocessing.get_context("spawn" if self.spawn else "forkserver")
        fork_server.prepare(() if self.spawn else self.preload)

    def run(self, points: Sequence[ReplayPoint]) -> Generator[Outcome, None, None]:
        waiting, order = deque(points), self.order or Order(tuple(points))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self.jobs:
                    self.start(waiting.popleft(), order)
                yield from self.ended(WATCH_S if self.watch else None)
        finally:
            self.stop()

    def start(self, point: ReplayPoint, order: Order) -> None:
        """Start a fresh worker for the point. Its record keeps the point's place in `order`."""
        release = point.server_params.get("vllm")
        folder = None if release is None else vllm_release.python_path(str(release))
        variables = {} if folder is None else vllm_release.environment(folder)
        environment = {**self.environment, **order.facts(point)}
        share = self._context.RawValue("d", 0.0) if self.watch else None
        server = nullcontext() if self.spawn else fork_server.server_of(folder, variables)
        with (
            _no_main(),
            deferred_ctrl_c() as deferred,
            server,
        ):  # of a worker that nobody knows nothing would be cleared away
            if not self.spawn:
                deferred.then = fork_server.end  # it may import vLLM for a minute, which the start would wait for
            if folder is not None:
                environment["packages"] = provenance.packages()
            process = self._context.Process(
                target=isolation.run_point,
                args=(self.work, self.points_dir, point, environment, share),
                name=point.label,
            )
            try:
                process.start()  # returns once the server has forked, so its own imports are not counted
            except (EOFError, ConnectionError):
                raise UserError(
                    "the process that workers are forked from has ended (out of memory?); run the same command again: "
                    "finished points stay."
                ) from None
            self._running.append(_Running(point, process, environment, datetime.now(UTC), time.monotonic(), share))

    def ended(self, patience_s: float | None = None) -> Iterator[Outcome]:
        """Yield the outcomes of ended points, once there is one; none if that takes longer than `patience_s`."""
        first_limit = min(worker.begin for worker in self._running) + self.timeout_s
        left_s = max(0.0, first_limit - time.monotonic())
        ends = [worker.process.sentinel for worker in self._running]
        connection.wait(ends, timeout=left_s if patience_s is None else min(left_s, patience_s))
        for worker in list(self._running):
            late = time.monotonic() - worker.begin > self.timeout_s
            if worker.process.exitcode is not None or late:
                self._running.remove(worker)
                yield self._finish(worker)
        if self.watch:
            self.watch(sum(worker.share.value for worker in self._running if worker.share))

    def stop(self) -> None:
        """End the running points, and leave nothing of them."""
        for worker in self._running:
            worker.process.kill()
        for worker in self._running:
            worker.process.join()
            shutil.rmtree(self._folder(worker), ignore_errors=True)
        self._running.clear()

    def _finish(self, worker: _Running) -> Outcome:
        point, process = worker.point, worker.process
        late = process.exitcode is None
        if late:
            process.kill()
        process.join()
        wall_s = time.monotonic() - worker.begin
        if not self.points_dir.is_dir():
            raise UserError(
                f"{self.points_dir} is gone: it was removed or moved while the run went on; run the same command again."
            )
        record, failure = self.points_dir / point.id, failed(self.points_dir, point.id)
        if failure.exists():
            shutil.rmtree(failure)
        if (record / MANIFEST).exists():
            return Outcome(point, "ok", record, wall_s)
        folder = self._folder(worker)
        try:
            if process.exitcode == isolation.NO_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            reason = self._reason(process.exitcode, folder, late)
            if not is_failure(folder):
                write_failure(folder, point, reason, worker.environment, worker.started)
            publish(folder, failure)
        except OSError as error:
            if not is_full(error):
                raise
            shutil.rmtree(folder, ignore_errors=True)
            raise no_room(point, self.points_dir) from None
        return Outcome(point, "failed", failure, wall_s, reason)

    def _reason(self, exitcode: int | None, folder: Path, late: bool) -> str:
        if late:
            return f"took longer than {self.timeout_s:g} s"
        if (folder / ERROR).exists():
            return (folder / ERROR).read_text().strip()
        if exitcode is not None and exitcode < 0:
            name = signal.Signals(-exitcode).name
            return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        return f"the worker ended with status {exitcode} and no result"

    def _folder(self, worker: _Running) -> Path:
        assert worker.process.pid is not None, "a started process has a pid"
        return temporary(self.points_dir, worker.point.id, worker.process.pid)


@contextmanager
def _no_main() -> Iterator[None]:
    """Hide the starting program from workers: they need nothing of it, and a script or a notebook would start again in
    each."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program
