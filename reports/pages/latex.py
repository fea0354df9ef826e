"""Tables for papers: a `tabular` with the lines of LaTeX's booktabs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reports.figures.style import named

if TYPE_CHECKING:
    from rich.table import Table

_SIGNS = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "µ": r"$\mu$",
}


def latex_of(table: Table, names: Mapping[str, str]) -> str:
    """Return a table of the terminal as LaTeX, its caption as a comment. `names`: a name in it -> the paper's name."""

    def cell(text: object) -> str:
        return "".join(_SIGNS.get(sign, sign) for sign in named(str(text), names))

    headings = [cell(str(column.header).replace("\n", ", ")) for column in table.columns]
    rows = [map(cell, row) for row in zip(*(column.cells for column in table.columns), strict=True)]
    sides = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    caption = " ".join(str(table.caption).split())
    lines = [" & ".join(row) + r" \\" for row in rows]
    body = ["\\toprule", " & ".join(headings) + r" \\", "\\midrule", *lines, "\\bottomrule"]
    return "\n".join([f"% {caption}", f"\\begin{{tabular}}{{{sides}}}", *body, "\\end{tabular}", ""])
