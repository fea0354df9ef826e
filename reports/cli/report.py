"""`rehearse report`: table and report.html from what a run left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.cli.console import wide

if TYPE_CHECKING:
    from harness.experiment import Experiment


_WIDE = 120


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results directory of a run.")],
) -> None:
    """Print the table of a results directory and write its report again.

    `rehearse report results/bench`

    `rehearse report results/liveserve`
    """
    from harness.results import COLLECTION, read_results
    from reports.cli.run_group import present_group

    if (folder / COLLECTION).is_file():
        present_group(folder)
        return
    experiment, rows = read_results(folder)
    present(experiment, rows, folder)


def present(experiment: Experiment, rows: list[dict[str, Any]], folder: Path) -> None:
    """Print table, answer and paths, and write the report."""
    from reports.answer import Finished, answer
    from reports.html import write_report
    from reports.table import results_table

    console = wide(_WIDE)
    console.print(results_table(experiment, rows, folder, ranges=console.width >= _WIDE))
    finished = [
        Finished(
            row["engine"], row["params"], row["seed"], {n: m["value"] for n, m in row["metrics"].items()}
        )
        for row in rows
        if row["status"] == "ok"
    ]
    sentence = answer(finished, [*experiment.grid])
    if sentence is not None:
        console.print(f"{sentence}\n", highlight=False, soft_wrap=True, style="bold")
    paths = [folder / "summary.json"]
    if finished:
        paths.append(write_report(folder))
    for path in paths:
        console.print(str(path), highlight=False, soft_wrap=True)
