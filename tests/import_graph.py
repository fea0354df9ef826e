"""Which module imports which, read from the text: nothing is imported to find out."""

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

Import = ast.Import | ast.ImportFrom


def imports(path: Path) -> list[Import]:
    """Return the imports of a file, inside functions and for type checkers too."""
    return [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, Import)]


def modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Dotted name -> file of every module of the folders `packages` in `root`. A package has its `__init__`'s file."""
    found = {}
    for path in (path for package in packages for path in sorted((root / package).rglob("*.py"))):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def package_of(module: str, path: Path) -> str:
    """Return the package whose folder `path` stands in."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def targets(imports: Iterable[Import], package: str, known: Collection[str]) -> set[str]:
    """Return the modules among `known` that `imports` of a module in `package` name.

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
        inner = {f"{base}.{alias.name}" for alias in statement.names}
        found |= {name if name in known else base for name in inner}
    return found & set(known)


def parents(module: str) -> Iterator[str]:
    """Yield the packages that Python imports before `module`: `a.b` and `a` of `a.b.c`."""
    while module := module.rpartition(".")[0]:
        yield module


def within(module: str, packages: Iterable[str]) -> bool:
    """Return whether `module` is one of `packages` or stands in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)
