"""Docstrings can be read without what stands before them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("rehearsal", "workloads", "engines", "harness", "reports")
FRAGMENTS = ("Of ", "Those ", "Whom ", "Whose ", "As ", "It has ")
CLAUSES = ("Whether ", "How ", "When ", "Where ", "What ", "Why ", "Who ", "Which ")
"""Clauses in the place of a noun or a verb: "Return whether ...", "True where ..." and "Time of ..." say the same."""


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is a statement: docstrings, and strings below constants and fields."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def beginning_with(words: tuple[str, ...]) -> list[str]:
    """Return the places of docstrings that begin with one of these words."""
    return [
        f"{file.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(file)
        if " ".join(text.split()).startswith(words)
    ]


def test_no_docstring_begins_as_a_fragment():
    assert not beginning_with(FRAGMENTS)


def test_no_docstring_is_a_clause():
    assert not beginning_with(CLAUSES)
