"""Docstrings can be read without what stands before them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("workloads", "engines", "harness", "reports")
FRAGMENTS = ("Of ", "Those ", "Whom ", "Whose ", "As ", "It has ")


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is a statement: docstrings, and strings below constants and fields."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_no_docstring_begins_as_a_fragment():
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(file)
        if " ".join(text.split()).startswith(FRAGMENTS)
    ]
    assert not found
