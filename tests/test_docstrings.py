"""Docstrings can be read without what stands before them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("rehearsal", "workloads", "engines", "harness", "reports")
REFUSED = (
    *("Of ", "Those ", "Whom ", "Whose ", "As ", "It has "),
    *("Whether ", "How ", "When ", "Where ", "What ", "Why ", "Who ", "Which "),
)
"""Fragments, and clauses in the place of a noun or a verb: "Return whether ...", "True where ..." and "Time of ..." say
the same."""


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is a statement: docstrings, and strings below constants and fields."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_no_docstring_begins_as_a_fragment_or_is_a_clause():
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert not [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line, text in docstrings(file)
        if " ".join(text.split()).startswith(REFUSED)
    ]
