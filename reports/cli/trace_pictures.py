"""`rehearse trace stat`, `plot`, `fidelity` and `perfetto`: a trace or a run in numbers and pictures."""

import gzip
from pathlib import Path
from typing import Annotated

import typer

from reports.cli.output import AS_CSV, AS_JSON, emit, form_of
from reports.cli.settings import PointFolder, option, written_as
from workloads.atomic_file import STDOUT, output

TraceFile = Annotated[Path, typer.Argument(help="A trace file, .parquet or .jsonl.")]
PageFolder = Annotated[Path, option("--out", "Directory for the page and the pictures.", "DIR")]


def stat(file: TraceFile, as_json: bool = AS_JSON, as_csv: bool = AS_CSV) -> None:
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
    out: PageFolder,
    against: Path | None = option(None, "Another trace file, to compare with.", "FILE"),
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
    data: Path = option(..., "Directory with the real files.", "DIR"),
    out: PageFolder = Path("results/fidelity"),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
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


def perfetto(
    folder: PointFolder,
    out: Path | None = option(
        None,
        "File to write, compressed if it ends in .gz, or -; default: ID.perfetto.json.gz here.",
        callback=written_as(".json", ".gz"),
    ),
) -> None:
    """Write what a run did as Chrome trace JSON: open it at ui.perfetto.dev, or in chrome://tracing.

    A process for each GPU with a thread for each stage's replica, its steps as slices with their requests and tokens,
    counters of queues and KV blocks; and every request as a slice with its phases, at each stage and at its user.

    `rehearse trace perfetto results/bench/points/ID`

    `rehearse trace perfetto results/bench/points/ID --out - | jq .otherData`
    """
    from harness.records.log_to_trace import finished_record
    from reports.runs.chrome_trace import write

    record = finished_record(folder)
    out = out or Path(f"{record.point.id}.perfetto.json.gz")
    with output(out) as file:
        if out.suffix == ".gz":
            # Without a time and a name in its head the same record gives the same bytes.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                number = write(record, packed)
        else:
            number = write(record, file)
    if out != STDOUT:
        typer.echo(f"{out}: {number:,} events; open it at https://ui.perfetto.dev")
