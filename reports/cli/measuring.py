"""Measuring points from the command line: resume, progress, Ctrl-C, and what to do with the results."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from harness.clocks.ctrl_c import Stopped, stopped
from reports.cli.output import Form, emit
from reports.tables.labels import counted
from workloads.errors import UserError
from workloads.optional import install_command

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.point import Point
    from harness.experiments.run_order import Order, Outcome
    from harness.live.point import LivePoint
    from harness.records.results import Collection
    from harness.replays.executors.place import Place
    from harness.replays.point import ReplayPoint


MOST_PER_CORE = 8
"""Points at a time for each core: each is a process that computes all the time. [chosen]"""
Present = Callable[[], None]


def measure_points(
    owner: Experiment | Collection,
    points: Sequence[Point],
    out: Path,
    jobs: int | None,
    present: Present = lambda: None,
    order_seed: int | None = None,
    before: Sequence[str] = (),
    place: Place | None = None,
) -> int:
    """Measure as `measured` does, and return the exit status of the points."""
    from harness.records.record import status_of

    rows = measured(owner, points, out, jobs, present, order_seed, before, place)
    asked = {point.id for point in points}
    return status_of([row["error"] for row in rows if row["point"] in asked and row["status"] == "failed"])


def measured(
    owner: Experiment | Collection,
    points: Sequence[Point],
    out: Path,
    jobs: int | None,
    present: Present | None = None,
    order_seed: int | None = None,
    before: Sequence[str] = (),
    place: Place | None = None,
) -> list[dict[str, Any]]:
    """Run the points that are not finished in `out`, then return the summary; `present` is called first, while the
    directory is still claimed.

    `order_seed`: run them in the order that it gives; None: as they stand. `before`: points of earlier calls that the
    summary also covers. `place`: the executor, of replays; None: this machine. It
    runs `jobs` points at a time; None: as many as it has room for.

    UserError for points that cannot be taken there, and without vLLM, which workers need, or the libraries of live
    runs; `Stopped` on KeyboardInterrupt.
    """
    from harness.experiments.run_order import shuffled
    from harness.records import results
    from workloads.devices import SOCKET_DEVICES

    if place is not None and not place.local:
        place.check(points)
    devices = {point.device for point in points}
    jobs = points_at_a_time(devices, jobs, place)
    _check_installed(
        (place is None or place.local) and bool(devices - {"live"}), bool(devices & set(SOCKET_DEVICES))
    )
    begun_s, loaded_s = time.monotonic(), None
    with (
        stopped(f"Stopped; {_goes_on(points)}"),
        place.opened() if place else contextlib.nullcontext(),
        results.claim(out, owner) as points_dir,
    ):
        ids = [*before, *results.ids(out, points)]
        order = shuffled(points, order_seed)
        todo = results.unfinished(points_dir, order.points)
        with (
            _kept(out, ids, points),
            _executed(points_dir, points, todo, jobs, owner.timeout_s, order, place) as (show, outcomes),
        ):
            for outcome in outcomes:
                loaded_s = loaded_s or time.monotonic() - outcome.wall_s
                show(outcome)
        measured_s = time.monotonic()
        rows = results.write_summary(out, ids)
        if present is not None:
            with stopped(all_measured(out)):
                present()
            if loaded_s is not None and devices != {"live"}:
                parts = (loaded_s - begun_s, measured_s - loaded_s, time.monotonic() - measured_s)
                typer.echo(
                    "{:.0f} s to load vLLM, {:.0f} s for the points, {:.0f} s for the report".format(*parts),
                    err=True,
                )
    return rows


def points_at_a_time(devices: set[str], jobs: int | None, place: Place | None = None) -> int | None:
    """Return the number of points that run at a time: by default one per core; one on the wall clock, where points
    would disturb each other. None: as many as the executor has room for. UserError for points that the executor
    cannot run, and for so many that they starve each other."""
    from harness.experiments.provenance import cores
    from workloads.devices import WALL_DEVICES

    if place is not None and not place.local:
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


def show_points(points: Sequence[Point], form: Form = "table") -> None:
    """Print the points that a run would measure, in order."""
    if form == "table":
        for point in points:
            typer.echo(f"{point.id}  {point.label}")
        typer.echo(counted(len(points), "point"))
        return
    emit(form, [{"id": point.id, "label": point.label, **point.model_dump(mode="json")} for point in points])


@contextlib.contextmanager
def _executed(
    points_dir: Path,
    points: Sequence[Point],
    todo: Sequence[Point],
    jobs: int | None,
    timeout_s: float,
    order: Order,
    place: Place | None,
) -> Iterator[tuple[Callable[[Outcome], None], Iterator[Outcome]]]:
    """Yield the function to call with each outcome, and the outcomes as points end: by workers, or calls to a live
    endpoint."""
    finished = len(points) - len(todo)
    if points[0].device == "live":
        from harness.live.run.live_executor import LiveExecutor
        from reports.cli.live_view import live_view

        with live_view(len(points), finished) as (see, show):
            executor = LiveExecutor(points_dir, timeout_s=timeout_s, order=order, show=see)
            with contextlib.closing(executor.run(cast("Sequence[LivePoint]", todo))) as outcomes:
                yield show, outcomes
        return
    from harness.by_device import measure
    from harness.replays.executors.local import LocalExecutor
    from harness.replays.worker import vllm_release
    from reports.cli.progress import progress
    from workloads.devices import REAL_DEVICES

    spawn = any(point.device in REAL_DEVICES for point in points)
    vllm_release.check(str(each) for point in todo if (each := point.server_params.get("vllm")))
    with progress(todo, finished, jobs) as (show, watch):
        if place is None or place.local:
            assert jobs is not None, "the number of cores is known"
            executor = LocalExecutor(
                points_dir, measure, jobs=jobs, timeout_s=timeout_s, order=order, spawn=spawn, watch=watch
            )
        else:
            from harness.replays.executors.ray import RayExecutor

            executor = RayExecutor(
                points_dir, measure, jobs=jobs, timeout_s=timeout_s, order=order, watch=watch
            )
        with contextlib.closing(executor.run(cast("Sequence[ReplayPoint]", todo))) as outcomes:
            yield show, outcomes


def _check_installed(vllm: bool, live: bool) -> None:
    if vllm and importlib.util.find_spec("vllm") is None:
        raise UserError(f"a run needs vLLM, which is not installed; run {install_command('cpu')}.")
    if live and any(
        importlib.util.find_spec(name) is None for name in ("uvloop", "picows", "msgspec", "httptools")
    ):
        raise UserError(f"real sockets need libraries that are not installed; run {install_command('live')}.")


@contextlib.contextmanager
def _kept(out: Path, ids: list[str], points: Sequence[Point]) -> Iterator[None]:
    """Write a summary even if the run is interrupted."""
    from harness.records import results

    try:
        yield
    except KeyboardInterrupt:
        asked = {point.id for point in points}
        rows = results.write_summary(out, ids)
        finished = sum(row["status"] == "ok" for row in rows if row["point"] in asked)
        raise Stopped(
            f"Stopped with {finished} of {len(points)} points finished; {_goes_on(points)}"
        ) from None


def all_measured(out: Path) -> str:
    """The sentence about an interrupt after the last point."""
    return f"Stopped; all points are measured: `rehearse report {out}` shows them."


def _goes_on(points: Sequence[Point]) -> str:
    live = points[0].device == "live"
    return f"run the same command again {'with --resume to continue' if live else 'to resume'}."
