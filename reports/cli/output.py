"""Tables for programs: the rows of any table as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from workloads.errors import UserError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


def check(as_json: bool, as_csv: bool) -> None:
    """UserError when both are asked for."""
    if as_json and as_csv:
        raise UserError("--json and --csv are two forms of the same table; leave one out.")


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1, default=str))


def print_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    """A line for each row and one of headings: every name that some row has, `a.b` for what is nested. Nothing is
    rounded; what is missing is empty."""
    flat = [dict(_flat(row)) for row in rows]
    headings = dict.fromkeys(name for row in flat for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(headings), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    typer.echo(text.getvalue(), nl=False)


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{before}{name}", json.dumps(value, default=str)
        else:
            yield f"{before}{name}", value
