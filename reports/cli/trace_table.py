"""What the commands that make a trace print of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.trace import Trace


def describe_trace(trace: Trace) -> None:
    """Print what a trace holds, in numbers."""
    from rich.console import Console
    from rich.table import Table

    from workloads.describe import describe

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in describe(trace).items():
        table.add_row(name, cell(value))
    Console().print(table)


def cell(value: object) -> str:
    """A value of a trace as a table shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
