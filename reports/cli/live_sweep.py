"""`--sweep`: rates up to the server's throughput, as in guidellm's profile `sweep`.

One user at a time and very many users are measured first. The rates lie between what these two loads reached, evenly
spaced, and the highest is that of very many users.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from reports.tables.labels import counted
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.point import Point
    from harness.records.record import Record

ENDS = "-ends"
"""The two loads are in a folder of their own, next to that of the results, by its name with this end."""

NEAR = 0.9
"""Share of the rate at which a closed loop's users come, above which that rate is the limit. [chosen]"""


def between(ends: Experiment, points: Sequence[Point], folder: Path, number: int) -> tuple[list[float], int]:
    """Measure `points`, the two loads of `ends`, and return the rates, 1/s, and 0; no rates and an exit status where
    one could not be measured. UserError where a load was too short, or the folder is taken."""
    from reports.cli.live_view import Calls
    from reports.cli.measuring import check_new, measure_points
    from reports.runs.repeats import record_of

    place = folder.with_name(folder.name + ENDS)
    check_new(place)
    status = measure_points(ends, points, place, Calls())
    if status:
        return [], status
    low, high = (_rate(record_of(place, point.id)) for point in points)
    typer.echo(
        f"one user at a time: {low:.3g} a second, {points[-1].params['c']:,} users: {high:.3g} a second; "
        f"{counted(number, 'rate')} up to the second",
        err=True,
    )
    supply = points[-1].params.get("rate")
    if isinstance(supply, float) and high > NEAR * supply:
        typer.echo(
            f"new users came at {supply:.3g} a second at most: the server may take more; give longer replies.", err=True
        )
    rates = np.linspace(min(low, high), high, number + 1)[1:]
    return [float(f"{rate:.3g}") for rate in rates], 0


def _rate(record: Record) -> float:
    """Return how many users came per second of the steady window."""
    begin_s, end_s = (record.metrics.get(name, {}).get("value") for name in ("steady_begin", "steady_end"))
    kept = record.table("events", columns=["t", "kind"], filters=[("kind", "==", "session_start")])
    came = 0 if begin_s is None or end_s is None else int(kept["t"].between(begin_s, end_s, inclusive="right").sum())
    if begin_s is None or end_s is None or not came:
        raise UserError("--sweep: no user came at full load; give a longer --duration, or fewer --sessions.")
    return came / (end_s - begin_s)
