"""Tables for people and programs: rows as CSV or JSON with unrounded numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from reports.cli.settings import flag, option
from reports.tables.plain_tables import csv_of
from workloads.errors import UserError, printable

if TYPE_CHECKING:
    from rich.console import Console

Form = Literal["table", "json", "csv"]
AS_JSON = flag("--json", "Print JSON instead of a table.")
AS_CSV = flag("--csv", "Print CSV instead of a table.")
COLUMNS = option(None, "Metrics instead of the main ones, as p50,p95,p99,continuity; also in --csv.", "A,B")


def asked_metrics(columns: str | None) -> tuple[str, ...]:
    """Return the metrics of --columns, none without it. Their vocabulary is loaded only if needed."""
    if columns is None:
        return ()
    from reports.tables.columns import parse_columns

    return parse_columns(columns)


def form_of(as_json: bool, as_csv: bool) -> Form:
    """UserError when both are asked for."""
    if as_json and as_csv:
        raise UserError("--json and --csv are two forms of one table; leave one out.")
    return "json" if as_json else "csv" if as_csv else "table"


def emit(form: Form, rows: Sequence[Mapping[str, Any]], more: Any = None) -> None:
    """Print `rows`; `more`: the larger content of JSON, if it has any."""
    from harness.records.record import plain_json

    if form == "json":
        typer.echo(json.dumps(plain_json(rows if more is None else more), indent=1, default=str))
        return
    typer.echo(csv_of(rows), nl=False)


def wide(least: int, stderr: bool = False) -> Console:
    """A terminal as it is; a file at least this wide, as it has no edge to fit."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, least)
    return console


def tell(console: Console, lines: Iterable[Any]) -> None:
    """Print lines as they are: without colours, and wrapped only by the terminal."""
    for line in lines:
        console.print(printable(str(line)) if isinstance(line, Path) else line, highlight=False, soft_wrap=True)
