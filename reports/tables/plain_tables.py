"""Tables as text: titled ones for a page and the terminal, and rows as a CSV file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Shown


class Table(NamedTuple):
    """A titled table; without headings it is names and values."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def grid(headings: Sequence[str], rows: Iterable[Sequence[Any]], left: int | None = None, **more: Any) -> Shown:
    """A table for a terminal, without a frame. The first `left` columns are texts, the others numbers; None: all are
    texts. `more`: of rich's Table."""
    from rich.table import Table as Shown

    defaults = {"pad_edge": False, "title_justify": "left", "show_header": bool(headings)}
    shown = Shown(*headings, **{"box": None, **defaults, **more})
    for column in shown.columns[len(headings) if left is None else left :]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*row)
    return shown


def print_tables(tables: Iterable[Table], console: Console) -> None:
    """Each with an empty line after it; the first column on the left, numbers on the right."""
    for table in tables:
        console.print(grid(table.headings, table.rows, 1, title=table.title))
        console.print()


def table_of_units(
    title: str, headings: Iterable[tuple[str, str]], rows: Iterable[Sequence[str]], left: int = 0
) -> Shown:
    """A table for a terminal whose headings have a unit each; the first `left` columns are words."""
    from rich.box import SIMPLE_HEAD

    named = [f"{heading}\n{unit}" for heading, unit in headings]
    return grid(named, rows, left, title=title, box=SIMPLE_HEAD, collapse_padding=True)


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a CSV line for each row, with unrounded numbers, and a line of headings: all names that any row has."""
    flat = [dict(_flat(row)) for row in rows]
    text = io.StringIO()
    headings = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(text, list(headings), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the cells of a row. Nested values have names with dots; a list is JSON in its cell."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{before}{name}", json.dumps(value, default=str)
        else:
            yield f"{before}{name}", value
