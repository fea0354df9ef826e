"""`rehearse trace stat`, `plot` and `fidelity`: what a trace holds, in numbers and in pictures."""

from pathlib import Path
from typing import Annotated

import typer

from reports.cli.output import AsCsv, AsJson, emit, form_of
from reports.cli.settings import option

TraceFile = Annotated[Path, typer.Argument(help="A trace file, .parquet or .jsonl.")]


def stat(file: TraceFile, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Print how a trace's users arrive, how long everything is, and how they interrupt.

    `rehearse trace stat voice.parquet`

    `rehearse trace stat voice.parquet --json`
    """
    from workloads.formats import load_trace
    from workloads.statistics.describe import statistics

    form = form_of(as_json, as_csv)
    trace = load_trace(file)
    if form != "table":
        found = statistics(trace)
        emit(form, [found], found)
        return
    from rich.console import Console

    from reports.tables.plain_tables import print_tables
    from reports.traces.numbers import tables

    print_tables(tables(trace), Console())


def plot(
    file: TraceFile,
    out: Annotated[Path, option("--out", "Directory for the page and the pictures.", "DIR")],
    against: Annotated[
        Path | None, option("--against", "Another trace file, drawn beside it.", "FILE")
    ] = None,
) -> None:
    """Draw a trace: arrivals, gaps, lengths, the first sessions and, where there is sound, what a user sends.

    `rehearse trace plot voice.parquet --out pictures`

    `rehearse trace plot fitted.parquet --against replayed.parquet --out pictures`
    """
    from reports.traces.page import write_trace_page
    from workloads.formats import load_trace

    other = load_trace(against) if against else None
    page = write_trace_page(load_trace(file), file.name, out, other, against.name if against else "")
    typer.echo(page)


def fidelity(
    data: Annotated[Path, option("--data", "Directory with the real files.", "DIR")],
    out: Annotated[Path, option("--out", "Directory for the page and the pictures.", "DIR")] = Path(
        "results/fidelity"
    ),
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Compare the fitted generators with the real data they were fitted to, column by column.

    `rehearse trace fidelity --data data --out results/fidelity`
    """
    from rich.console import Console
    from rich.table import Table

    from reports.traces.fidelity import write_fidelity_page
    from workloads.statistics.generator_fit import compare

    form = form_of(as_json, as_csv)
    comparisons = compare(data)
    page = write_fidelity_page(comparisons, out)
    if form == "table":
        table = Table("workload", "column", "source", "n real", "KS", "note", box=None, pad_edge=False)
        for one in comparisons:
            table.add_row(
                one.workload, one.column, one.source, f"{len(one.real):,}", f"{one.ks:.3f}", one.note
            )
        Console().print(table)
    else:
        names = ("workload", "column", "source", "ks", "note")
        rows = [
            {**{name: getattr(one, name) for name in names}, "n_real": len(one.real)} for one in comparisons
        ]
        emit(form, rows)
    typer.echo(page, err=form != "table")
