"""Reads a report as a browser would: its links, its ids and the texts of its tables."""

import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

from rich.console import Console

from reports.runs.measured import load_run
from reports.runs.table import results_table


def terminal(folder: Path, width: int = 150, asked: tuple[str, ...] = ()) -> list[str]:
    """The lines of the table of a results directory, on a terminal so wide."""
    console = Console(file=StringIO(), width=width)
    console.print(results_table(load_run(folder), ranges=width > 80, asked=asked))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


class Page(HTMLParser):
    """`ids`, `links` (values of href, src and url()) and `tables` (rows of cell texts by heading)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.links = re.findall(r"url\(['\"]?([^)'\"]+)", html)
        self.tables: dict[str, list[list[str]]] = {}
        self._heading = ""
        self._row: list[str] | None = None
        self._text: list[str] | None = None
        self.feed(html)

    def section(self, start: str) -> list[list[str]]:
        """The rows of the table under the heading that begins so."""
        return next(rows for heading, rows in self.tables.items() if heading.startswith(start))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.links += [str(given[name]) for name in ("href", "src", "xlink:href", "srcset") if given.get(name)]
        if tag == "tr":
            self._row = []
            self.tables.setdefault(self._heading, []).append(self._row)
        if tag in ("td", "th", "h2", "h3"):
            self._text = []
        if tag in ("small", "br") and self._text is not None:
            self._text.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("td", "th", "h2", "h3") or self._text is None:
            return
        text = " ".join("".join(self._text).split())
        if tag in ("h2", "h3"):
            self._heading = text
        elif self._row is not None:
            self._row.append(text)
        self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)
