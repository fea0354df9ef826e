"""Tables for programs: any table's rows as CSV or JSON, with numbers as they are and not as they are shown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from rehearsal.workloads.errors import UserError

Form = Literal["table", "json", "csv"]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


def form_of(as_json: bool, as_csv: bool) -> Form:
    """UserError when both are asked for."""
    if as_json and as_csv:
        raise UserError("--json and --csv are two forms of one table; leave one out.")
    return "json" if as_json else "csv" if as_csv else "table"


def emit(form: Form, rows: Sequence[Mapping[str, Any]], more: Any = None) -> None:
    """Print `rows`; `more`: what JSON holds instead of them, as it has room for more."""
    if form == "json":
        typer.echo(json.dumps(rows if more is None else more, indent=1, default=str))
        return
    typer.echo(csv_of(rows), nl=False)


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same as the text of a CSV file."""
    flat = [dict(_flat(row)) for row in rows]
    text = io.StringIO()
    headings = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(text, list(headings), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What is nested has names with dots; a list is JSON in its cell."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{before}{name}", json.dumps(value, default=str)
        else:
            yield f"{before}{name}", value
