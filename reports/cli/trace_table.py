"""What the commands that make a trace write and print of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports.cli.settings import option, written_as
from workloads.atomic_file import STDOUT

if TYPE_CHECKING:
    from workloads.trace import Trace


Out = Annotated[
    Path,
    option(
        "--out",
        "File to write: JSON lines if it ends in .jsonl, else Parquet; - prints JSON lines.",
        callback=written_as(".parquet", ".jsonl"),
    ),
]


def save_and_describe(trace: Trace, out: Path) -> None:
    """Write the trace and print what it holds; beside the trace, where that goes to standard output."""
    from workloads.formats import save_trace

    save_trace(trace, out)
    describe_trace(trace, err=out == STDOUT)
    if out != STDOUT:
        typer.echo(f"\n{out}")


def describe_trace(trace: Trace, err: bool = False) -> None:
    """Print what a trace holds, in numbers."""
    from rich.console import Console
    from rich.table import Table

    from workloads.statistics.describe import describe

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in describe(trace).items():
        table.add_row(name, cell(value))
    Console(stderr=err).print(table)


def cell(value: object) -> str:
    """A value of a trace as a table shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
