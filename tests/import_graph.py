"""Which module imports which, read from the text: nothing is imported to find out."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Source:
    """A file's code without what never runs: comments, strings that stand alone (docstrings) and TYPE_CHECKING blocks.

    `imports` are those that run, inside functions too; `typing` those of the TYPE_CHECKING blocks.
    """

    tree: ast.Module
    imports: tuple[Import, ...]
    typing: tuple[Import, ...]


def read(text: str | bytes) -> Source:
    """Parse a file's text; SyntaxError when it is not Python."""
    tree = ast.parse(text)
    imports: list[Import] = []
    typing: list[Import] = []
    tree.body = _running(tree.body, imports, typing)
    return Source(tree, tuple(imports), tuple(typing))


def modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Dotted name -> file of every module of the folders `packages` in `root`. A package has its `__init__`'s file."""
    found = {}
    for package in packages:
        for path in files(root / package):
            if path.suffix == ".py":
                parts = path.relative_to(root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def files(folder: Path) -> Iterator[Path]:
    """Every file below `folder` in a fixed order; no hidden ones, and nothing that Python has compiled."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != "." and name != "__pycache__")
        yield from (Path(parent, name) for name in sorted(names) if name[0] != "." and name[-4:] != ".pyc")


def package_of(module: str, path: Path) -> str:
    """The package whose folder `path` stands in."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def targets(imports: Iterable[Import], package: str, known: Collection[str]) -> set[str]:
    """The modules among `known` that `imports` of a module in `package` name.

    `from package import name` is the module `package.name` where there is one, else the package.
    """
    found = set()
    for statement in imports:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
            continue
        base = statement.module or ""
        if statement.level:
            above = package.split(".")[: package.count(".") + 2 - statement.level]
            base = ".".join([*above, base] if base else above)
        for alias in statement.names:
            inner = f"{base}.{alias.name}"
            found.add(inner if inner in known else base)
    return {name for name in found if name in known}


def parents(module: str) -> Iterator[str]:
    """The packages that Python imports before `module`: `a.b` and `a` of `a.b.c`."""
    while module := module.rpartition(".")[0]:
        yield module


def within(module: str, packages: Iterable[str]) -> bool:
    """Whether `module` is one of `packages` or stands in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _running(block: list[ast.stmt], imports: list[Import], typing: list[Import]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, Import):
            imports.append(statement)
        elif isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
                continue
        elif isinstance(statement, ast.If) and _only_typing(statement.test):
            _running(statement.body, typing, typing)
            kept += _running(statement.orelse, imports, typing)
            continue
        else:
            for field in ("body", "orelse", "finalbody"):
                if inner := getattr(statement, field, None):
                    setattr(statement, field, _running(inner, imports, typing))
            for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                part.body = _running(part.body, imports, typing)
        kept.append(statement)
    return kept


def _only_typing(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"
