"""`rehearse trace perfetto`: a run's timeline for Perfetto's viewer."""

import gzip
from pathlib import Path
from typing import Annotated

import typer

from reports.cli.settings import option, written_as
from workloads.atomic_file import STDOUT, output


def perfetto(
    folder: Annotated[Path, typer.Argument(metavar="POINT", help="A point's record, DIR/points/ID.")],
    out: Annotated[
        Path | None,
        option(
            "--out",
            "File to write, compressed if it ends in .gz, or -; default: ID.perfetto.json.gz here.",
            callback=written_as(".json", ".gz"),
        ),
    ] = None,
) -> None:
    """Write what a run did as Chrome trace JSON: open it at ui.perfetto.dev, or in chrome://tracing.

    A process for each GPU with a thread for each stage's replica, its steps as slices with their requests and tokens,
    counters of queues and KV blocks; and every request as a slice with its phases, at each stage and at its user.

    `rehearse trace perfetto results/bench/points/ID`

    `rehearse trace perfetto results/bench/points/ID --out - | jq .otherData`
    """
    from harness.records.recorded import finished_record
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
