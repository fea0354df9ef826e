"""Points by workers: on this machine, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness import by_device
from harness.experiments.point import Point
from harness.experiments.provenance import cores
from harness.experiments.run_order import Order, Outcome
from harness.replays.executors.place import Place
from harness.replays.worker import vllm_release
from reports.cli.measuring import Side, check_libraries
from reports.cli.progress import progress
from workloads.deferred import Deferred
from workloads.devices import LIVE, REAL_DEVICES, WALL_DEVICES
from workloads.errors import UserError
from workloads.optional import install_command

if TYPE_CHECKING:
    from harness.replays.point import ReplayPoint

CALLS = Deferred("reports.cli.live_view:Calls", loaded=False)
MOST_PER_CORE = 8
"""Points at a time for each core: each is a process that computes all the time. [chosen]"""


@dataclass
class Workers:
    """Implements `reports.cli.measuring.Side`. `place`: of the workers. `jobs`: points at a time; None: one per core,
    one on the wall clock, and elsewhere as many as there is room for."""

    jobs: int | None = None
    place: Place = field(default_factory=Place)
    again: str = "run the same command again to resume."
    loads: str = "vLLM"

    def check(self, points: Sequence[Point]) -> None:
        if not self.place.local:
            self.place.check(points)
        self.jobs = points_at_a_time({point.device for point in points}, self.jobs, self.place)
        if self.place.local and importlib.util.find_spec("vllm") is None:
            raise UserError(f"a run needs vLLM, which is not installed; run {install_command('cpu')}.")
        if any(point.device == "sockets" for point in points):
            check_libraries()

    def opened(self) -> AbstractContextManager[None]:
        return self.place.opened()

    @contextlib.contextmanager
    def executed(
        self, points_dir: Path, points: Sequence[Point], todo: Sequence[Point], timeout_s: float, order: Order
    ) -> Iterator[tuple[Callable[[Outcome], None], Iterator[Outcome]]]:
        vllm_release.check(str(each) for point in todo if (each := point.server_params.get("vllm")))
        with progress(todo, len(points) - len(todo), self.jobs) as (show, watch):
            if self.place.local:
                from harness.replays.executors.local import LocalExecutor

                assert self.jobs is not None, "the number of cores is known"
                spawn = any(point.device in REAL_DEVICES for point in points)
                executor = LocalExecutor(
                    points_dir,
                    by_device.measure,
                    jobs=self.jobs,
                    timeout_s=timeout_s,
                    order=order,
                    spawn=spawn,
                    watch=watch,
                )
            else:
                from harness.replays.executors.ray import RayExecutor

                executor = RayExecutor(
                    points_dir, by_device.measure, jobs=self.jobs, timeout_s=timeout_s, order=order, watch=watch
                )
            with contextlib.closing(executor.run(cast("Sequence[ReplayPoint]", todo))) as outcomes:
                yield show, outcomes


def points_at_a_time(devices: set[str], jobs: int | None, place: Place) -> int | None:
    """Return the number of points that run at a time: by default one per core; one on the wall clock, where points
    would disturb each other. None: as many as the executor has room for. UserError for points that the executor
    cannot run, and for so many that they starve each other."""
    if not place.local:
        return jobs
    device = next((each for each in sorted(devices) if each in WALL_DEVICES), None)
    if device is not None:
        if jobs not in (None, 1):
            raise UserError(f"--jobs {jobs}: device {device} measures one point at a time; leave --jobs out.")
        return 1
    most = MOST_PER_CORE * cores()
    if jobs is not None and jobs > most:
        raise UserError(
            f"--jobs {jobs}: points at a time share the {cores()} cores that this process may use; give {most} at "
            "most, or leave --jobs out."
        )
    return jobs or cores()


def side_of(points: Sequence[Point], jobs: int | None, place: Place) -> Side:
    """Return what executes these points, by their device. UserError for `jobs` or a place that they cannot have."""
    if points[0].device != LIVE:
        return Workers(jobs, place)
    place.check(points)
    points_at_a_time({LIVE}, jobs, place)
    side: Side = CALLS()
    return side
