"""`rehearse report`: table and report.html from what a run left."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from reports.cli.output import AS_CSV, AS_JSON, COLUMNS, asked_metrics, emit, form_of
from reports.cli.settings import flag, option
from workloads.errors import UserError

_log = logging.getLogger(__name__)


def _inches(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 40:
        raise typer.BadParameter(f"it must be a number from 1 to 40, got {text!r}")
    return value


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Results directory of a run.")],
    columns: str | None = COLUMNS,
    figure: str | None = option(None, "Write one figure for a paper, to DIR/figures/paper.", "NAME"),
    width: float | None = option(None, "Width of --figure in inches.", "IN", parser=_inches),
    no_title: bool = flag("--no-title", "Write --figure without its title."),
    latex: bool = flag("--latex", "Print the table as LaTeX (booktabs)."),
    names: str | None = option(None, "Names for --figure and --latex, as vllm_omni=vLLM-Omni.", "A=B,..."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Print the table of a results directory and write its report. For a folder of runs, write index.html.

    `rehearse report results/bench`

    `rehearse report results`

    `rehearse report results/bench --csv > bench.csv`

    `rehearse report results/bench --columns p50,p95,p99,continuity`

    `rehearse report results/bench --figure continuity --width 3.3 --no-title`

    `rehearse report results/bench --latex --names vllm_omni=vLLM-Omni`
    """
    form = form_of(as_json, as_csv)
    from harness.records.results import COLLECTION
    from reports.cli.claims import present_group
    from reports.cli.present import present
    from reports.runs.measured import load_run

    asked, renamed = asked_metrics(columns), _renamed(names)
    if figure is None and (width is not None or no_title):
        raise UserError("--width and --no-title are for one figure; give --figure NAME too.")
    if names is not None and figure is None and not latex:
        raise UserError("--names is for --figure and --latex; give one of them too.")
    if figure is not None:
        from reports.pages.paper_figure import write_figure

        for path in write_figure(folder, figure, width, not no_title, renamed):
            typer.echo(str(path))
        return
    if (folder / COLLECTION).is_file():
        if asked or latex:
            raise UserError(
                f"{'--columns' if asked else '--latex'} is for the table of one experiment, and {folder} holds "
                "cards of a paper; leave it out."
            )
        present_group(folder, form=form)
        return
    if not latex and not asked and (runs := _runs_below(folder)):
        from reports.pages.index_page import index_rows, write_index

        listed = index_rows(folder, runs)
        if form != "table":
            emit(form, [run.as_row() for run in listed])
        typer.echo(str(write_index(folder, listed)), err=form != "table")
        return
    run = load_run(folder)
    if latex:
        from reports.pages.latex import latex_of
        from reports.runs.table import main_table

        typer.echo(latex_of(main_table(run, asked=asked), renamed), nl=False)
        return
    present(run, form, asked)


def _renamed(names: str | None) -> dict[str, str]:
    """Parse `A=B,C=D`; UserError for anything else."""
    pairs = [pair.partition("=") for pair in names.split(",")] if names else []
    if not all(old.strip() and new.strip() for old, _, new in pairs):
        raise UserError(f"--names {names} is not a list of names; give it as vllm_omni=vLLM-Omni,liveserve=LiveServe.")
    return {old.strip(): new.strip() for old, _, new in pairs}


def _runs_below(folder: Path) -> list[Path]:
    """The results directories below a folder that is none itself; links are not followed."""
    from harness.records.results import COLLECTION, EXPERIMENT

    def is_run(path: Path) -> bool:
        return any((path / name).is_file() for name in (EXPERIMENT, COLLECTION))

    if not folder.is_dir() or is_run(folder):
        return []
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    return [run for path in below for run in ([path] if is_run(path) else _runs_below(path))]
