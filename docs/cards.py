"""Tables that a phone shows as cards: each cell is named by its column (`docs/extra.css` shows the names)."""

import re

_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_HEADING, _CELL = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL), re.compile(r"<td[^>]*>")


def labelled(html: str) -> str:
    """A page of Markdown's tables with `data-label` at every cell whose column has a heading."""
    return _TABLE.sub(lambda table: _labelled(table[0]), html)


def _labelled(table: str) -> str:
    headings = [re.sub(r"<[^>]*>", "", cell).strip() for cell in _HEADING.findall(table)]

    def row(found: re.Match[str]) -> str:
        names = iter(headings)
        return _CELL.sub(lambda cell: f"{cell[0][:-1]}{_label(next(names, ''))}>", found[0])

    return _ROW.sub(row, table)


def _label(name: str) -> str:
    return f' data-label="{name}"' if name else ""
