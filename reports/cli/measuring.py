"""Measuring points from the command line: resume, progress, Ctrl-C, and what to do with the results."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

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
    from harness.records.results import Collection


Present = Callable[[], None]


class Side(Protocol):
    """Executes points by workers (`reports.cli.workers`) or load generators (`reports.cli.live_view`). `again`:
    how the same command goes on after Ctrl-C; `loads`: what a run waits for at first, if it says so at its end."""

    again: str
    loads: str

    def check(self, points: Sequence[Point]) -> None:
        """Raise UserError for points that it cannot take, or where a library is missing."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Open its resources for a run."""
        ...

    def executed(
        self, points_dir: Path, points: Sequence[Point], todo: Sequence[Point], timeout_s: float, order: Order
    ) -> AbstractContextManager[tuple[Callable[[Outcome], None], Iterator[Outcome]]]:
        """Yield the function to call with each outcome, and the outcomes as points end."""
        ...


def measure_points(
    owner: Experiment | Collection,
    points: Sequence[Point],
    out: Path,
    side: Side,
    present: Present = lambda: None,
    order_seed: int | None = None,
    before: Sequence[str] = (),
) -> int:
    """Measure as `measured` does, and return the exit status of the points."""
    from harness.records.record import status_of

    rows = measured(owner, points, out, side, present, order_seed, before)
    asked = {point.id for point in points}
    return status_of([row["error"] for row in rows if row["point"] in asked and row["status"] == "failed"])


def measured(
    owner: Experiment | Collection,
    points: Sequence[Point],
    out: Path,
    side: Side,
    present: Present | None = None,
    order_seed: int | None = None,
    before: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Run the points that are not finished in `out`, then return the summary; `present` is called first, while the
    directory is still claimed.

    `order_seed`: run them in the order that it gives; None: as they stand. `before`: points of earlier calls that the
    summary also covers. UserError as `Side.check`; `Stopped` on KeyboardInterrupt.
    """
    from harness.experiments.run_order import shuffled
    from harness.records import results

    side.check(points)
    begun_s, loaded_s = time.monotonic(), None
    with stopped(f"Stopped; {side.again}"), side.opened(), results.claim(out, owner) as points_dir:
        ids = [*before, *results.ids(out, points)]
        order = shuffled(points, order_seed)
        todo = results.unfinished(points_dir, order.points)
        with (
            _kept(out, ids, points, side.again),
            side.executed(points_dir, points, todo, owner.timeout_s, order) as (show, outcomes),
        ):
            for outcome in outcomes:
                loaded_s = loaded_s or time.monotonic() - outcome.wall_s
                show(outcome)
        measured_s = time.monotonic()
        rows = results.write_summary(out, ids)
        if present is not None:
            with stopped(all_measured(out)):
                present()
            if loaded_s is not None and side.loads:
                parts = (loaded_s - begun_s, measured_s - loaded_s, time.monotonic() - measured_s)
                typer.echo(
                    "{:.0f} s to load {}, {:.0f} s for the points, {:.0f} s for the report".format(
                        parts[0], side.loads, *parts[1:]
                    ),
                    err=True,
                )
    return rows


def show_points(points: Sequence[Point], form: Form = "table") -> None:
    """Print the points that a run would measure, in order."""
    if form == "table":
        for point in points:
            typer.echo(f"{point.id}  {point.label}")
        typer.echo(counted(len(points), "point"))
        return
    emit(form, [{"id": point.id, "label": point.label, **point.model_dump(mode="json")} for point in points])


@contextlib.contextmanager
def _kept(out: Path, ids: list[str], points: Sequence[Point], again: str) -> Iterator[None]:
    """Write a summary even if the run is interrupted."""
    from harness.records import results

    try:
        yield
    except KeyboardInterrupt:
        asked = {point.id for point in points}
        rows = results.write_summary(out, ids)
        finished = sum(row["status"] == "ok" for row in rows if row["point"] in asked)
        raise Stopped(f"Stopped with {finished} of {len(points)} points finished; {again}") from None


def all_measured(out: Path) -> str:
    """The sentence about an interrupt after the last point."""
    return f"Stopped; all points are measured: `rehearse report {out}` shows them."


def recorded(folder: Path) -> bool:
    """Return whether any point was measured there, or failed."""
    points = folder / "points"
    return points.is_dir() and any(not path.name.startswith(".") for path in points.iterdir())


def check_new(folder: Path) -> None:
    """UserError where a run is there already: its numbers are of another time, and perhaps of another server."""
    if recorded(folder):
        raise UserError(
            f"{folder} holds a run already; give a new folder with --out to measure again, or rehearse live --resume "
            "to measure what is missing there."
        )


def check_libraries() -> None:
    """Raise UserError where a library of real sockets is missing."""
    names = ("uvloop", "picows", "msgspec", "httptools")
    if any(importlib.util.find_spec(name) is None for name in names):
        raise UserError(f"real sockets need libraries that are not installed; run {install_command('live')}.")
