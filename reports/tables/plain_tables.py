"""Titled tables of text, for a page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console


class Table(NamedTuple):
    """A titled table; without headings it is names and values."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def print_tables(tables: Iterable[Table], console: Console) -> None:
    """Each with an empty line after it; the first column on the left, numbers on the right."""
    from rich.table import Table as Shown

    for table in tables:
        shown = Shown(
            *table.headings,
            title=table.title,
            title_justify="left",
            show_header=bool(table.headings),
            box=None,
            pad_edge=False,
        )
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        console.print()
