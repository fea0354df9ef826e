"""`rehearse report`: table and report.html from what a run left."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.cli.output import AsCsv, AsJson, Columns, Form, asked_metrics, emit, form_of, tell, wide
from workloads.errors import UserError, printable

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.slo.targets import Verdict
    from reports.live.live_verdict import Asked, LiveVerdict


_log = logging.getLogger(__name__)
_WIDE = 150
"""From so many characters on a table has ranges."""


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results directory of a run.")],
    columns: Columns = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FORMAT", help="Also write llm-d's benchmark reports, or aiperf's JSON."
        ),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Print the table of a results directory and write its report again.

    `rehearse report results/bench`

    `rehearse report results/bench --csv > bench.csv` every metric in its own unit, over the seeds

    `rehearse report results/bench --columns p50,p95,p99,continuity` other metrics, also in the page

    `rehearse report results/liveserve`

    `rehearse report results/live --export llm-d` (or aiperf): in their format
    """
    form = form_of(as_json, as_csv)
    from harness.records.results import COLLECTION, read_results, unmeasured
    from reports.cli.claims import present_group

    asked = asked_metrics(columns)
    if export is not None:
        from reports.live.export import export_run

        for path in export_run(folder, export):
            typer.echo(str(path))
        return
    if (folder / COLLECTION).is_file():
        if asked:
            raise UserError(
                f"--columns is for the table of one experiment, and {folder} holds cards of a paper; leave it out."
            )
        present_group(folder, form=form)
        return
    experiment, rows = read_results(folder)
    if lacking := unmeasured(experiment, rows):
        _log.warning(
            "%s: %d points are not measured yet: %s.", folder, len(lacking), printable(", ".join(lacking))
        )
    present(experiment, rows, folder, form, asked)


def present_live(
    experiment: Experiment,
    rows: list[dict[str, Any]],
    folder: Path,
    form: Form,
    asked: Asked,
    metrics: Sequence[str] = (),
) -> Verdict | None:
    """Presents as `present` does, with what was asked kept in the folder, and JSON that begins with the verdict;
    returns that, None where there is nothing to judge by.
    """
    from reports.live.live_verdict import live_verdict
    from reports.runs.measured import load_run

    asked.write(folder)
    verdict = live_verdict(load_run(folder))
    if verdict is not None:
        verdict.write(folder)
    present(experiment, rows, folder, form, metrics, verdict)
    return None if verdict is None else verdict.verdict


def present(
    experiment: Experiment,
    rows: list[dict[str, Any]],
    folder: Path,
    form: Form = "table",
    metrics: Sequence[str] = (),
    verdict: LiveVerdict | None = None,
) -> None:
    """Print table, answer and paths, and write the report; of another form the rows alone, paths on stderr. Of a live
    run the verdict comes first; in JSON where it is given. `metrics`: columns instead of the main ones."""
    from reports.cli.verdict import show_verdict
    from reports.cost.batch_cost import BATCH, cost_table
    from reports.live.live_verdict import live_verdict
    from reports.live.server_side import sides_table
    from reports.pages.html import write_report
    from reports.runs.answer import answer, finished
    from reports.runs.measured import load_run
    from reports.runs.policies import identical_sentences, order_sentences
    from reports.tables.table import flat, results_data, results_table

    console = wide(_WIDE, stderr=form != "table")
    if form == "table":
        if experiment.device == "live":
            found = verdict or live_verdict(load_run(folder))
            if found is not None:
                show_verdict(console, found)
        console.print(results_table(experiment, rows, folder, console.width >= _WIDE, metrics))
    else:
        data = results_data(experiment, rows, metrics)
        emit(form, flat(data), data if verdict is None else {**verdict.as_dict(), "results": data})
    counted = finished(rows)
    if BATCH in experiment.grid and counted and form == "table":
        console.print(cost_table(counted, rows, [*experiment.grid], folder))
    if experiment.device == "live" and form == "table" and (table := sides_table(folder)) is not None:
        console.print(table)
    live = experiment.device == "live"  # its verdict is the sentence
    sentence = None if live else answer(counted, [*experiment.grid])
    if sentence is not None and form == "table":
        console.print(f"{sentence}\n", highlight=False, soft_wrap=True, style="bold")
    if counted and form == "table" and experiment.device != "live":
        run = load_run(folder)
        tell(console, [*order_sentences(run, never=True), *identical_sentences(run)])
    paths = [folder / "summary.json"]
    if counted or experiment.device == "live":
        paths.append(write_report(folder, metrics))
    tell(console, paths)
