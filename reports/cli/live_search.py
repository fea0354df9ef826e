"""`rehearse live --find`: search for how many calls an endpoint holds, and say it in a table and a sentence."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rehearsal.harness.experiment import Experiment, Traces, expand
from rehearsal.harness.live.capacity import CAPACITY, Capacity, Step, answer, as_dict, judge, search
from rehearsal.harness.record import write_json
from rehearsal.harness.results import write_summary
from rehearsal.harness.targets import SIGN, Target, name_of, number
from rehearsal.reports.cli.measuring import measure_points
from rehearsal.reports.cli.report import present
from rehearsal.reports.judged import repeat


def find_capacity(
    experiment: Experiment, targets: tuple[Target, ...], up_to: int, first: int, folder: Path
) -> bool:
    """Search, with the table of all that was measured at the end, and the answer; whether any point was measured."""
    traces: Traces = {}
    (axis,) = (name for name in experiment.grid if name in ("c", "sessions"))
    tried: dict[int, list[str]] = {}

    def at(numbers: list[int]) -> Experiment:
        return experiment.model_copy(update={"grid": {**experiment.grid, axis: numbers}})

    def measure(n: int) -> Step:
        points = expand(at([n]), traces)
        before = [id for ids in tried.values() for id in ids]
        tried[n] = [point.id for point in points]
        measure_points(
            at(sorted(tried)), points, folder, 1, experiment.timeout_s, lambda rows: None, before=before
        )
        return judge(n, [repeat(folder, id, targets) for id in tried[n]], targets)

    capacity = search(measure, targets, up_to, first)
    write_json(folder / CAPACITY, as_dict(capacity))
    rows = write_summary(folder, [id for n in sorted(tried) for id in tried[n]])
    present(at(sorted(tried)), rows, folder)
    _show(capacity)
    typer.echo(f"{experiment.set['url']} {answer(capacity)}")
    return any(row["status"] == "ok" for row in rows)


def _show(capacity: Capacity) -> None:
    """Each number that was tried, and whether it passed."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("calls", justify="right")
    for target in capacity.targets:
        table.add_column(
            f"{name_of(target.metric)} {SIGN[target.op]} {number(target.metric, target.bound)}",
            justify="right",
        )
    table.add_column("")
    styles = {"passes": "green", "fails": "red", "invalid": "yellow"}
    for step in capacity.steps:
        told = [
            ", ".join("–" if v is None else number(t.metric, v, unit=False) for v in values)
            for t, values in zip(
                capacity.targets, zip(*(r.values for r in step.repeats), strict=True), strict=True
            )
        ]
        verdict = "INVALID" if step.verdict == "invalid" else step.verdict
        table.add_row(str(step.sessions), *told, Text(verdict, styles[step.verdict]))
    Console().print(table)
