"""The output of a command about the results of a run: table, answer, report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from reports.cli.output import Form, emit, tell, wide
from workloads.devices import LIVE

if TYPE_CHECKING:
    from reports.runs.measured import Run

_WIDE = 150
"""Characters from which on a table has ranges."""


class Judged(Protocol):
    """A verdict on a run (`reports.live.live_verdict`)."""

    def as_dict(self) -> dict[str, Any]: ...


def present(run: Run, form: Form = "table", metrics: Sequence[str] = (), verdict: Judged | None = None) -> None:
    """Print table, answer and paths, and write the report; of another form the rows alone, paths on stderr. Of a live
    run the verdict comes first; in JSON where it is given. `metrics`: columns instead of the main ones."""
    from reports.pages.html import write_report
    from reports.runs.side import side_of
    from reports.runs.table import flat, results_data, results_table

    console, side = wide(_WIDE, stderr=form != "table"), side_of(run.experiment)
    if form != "table":
        data = results_data(run, metrics)
        emit(form, flat(data), data if verdict is None else {**verdict.as_dict(), "results": data})
    else:
        side.before_table(console, run, verdict)
        console.print(results_table(run, console.width >= _WIDE, metrics))
        side.after_table(console, run)
    paths = [run.folder / "summary.json"]
    if run.finished or run.experiment.device == LIVE:
        paths.append(write_report(run.folder, metrics))
    tell(console, paths)
