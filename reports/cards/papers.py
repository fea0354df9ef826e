"""Papers: packages of figure cards, ours and those of other packages.

Ours are the folders of `reports/papers`. Other packages name theirs by an entry point of group `rehearsal.papers`, such
as `vtc = "vtc_paper"`: the paper's name, and the package with a module for each card (`reports.cards.card`). Its
`__init__.py` may say, as plain constants, which are read without importing the package:

    REFERENCE     reference of the paper, for a group of cards that has one
    AGAINST       source of the numbers that the claims compare ours with; default: the paper
    ORDER_SEED    seed of the order in which the points are measured; default: the cards' own order
    NAMES         engine -> its name in pictures of papers
    COLOURS       engine -> its colour in all pictures, such as "#d55e00"; default: a free one
    PAGE          path of the paper's page from the package's folder; default: page.md
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from workloads.bounds import MOST_SEED
from workloads.errors import UserError, validate
from workloads.plugins import entry_points, fault

GROUP = "rehearsal.papers"
_OURS, _PACKAGE = Path(__file__).parents[1] / "papers", "reports.papers"
_NAME = re.compile("[a-z0-9_]+")

Colour = Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]


class About(BaseModel):
    """The constants of a paper's `__init__.py`, by their names in lower case."""

    model_config = ConfigDict(frozen=True)

    reference: str = ""
    against: str = "the paper"
    order_seed: int | None = Field(default=None, ge=0, le=MOST_SEED)
    names: dict[str, str] = {}
    colours: dict[str, Colour] = {}
    page: str = "page.md"


_SILENT = About()


@dataclass(frozen=True)
class Paper:
    """A package of figure cards."""

    name: str
    package: str
    folder: Path | None
    """None if the package is not found."""
    about: About = _SILENT
    fault: str = ""
    """The reason for which it cannot be used, in a sentence; empty if it can."""

    @property
    def modules(self) -> list[tuple[str, Path]]:
        """Name and path of each module that may be a card."""
        paths = [] if self.folder is None else sorted(self.folder.glob("*.py"))
        return [(f"{self.package}.{path.stem}", path) for path in paths if path.stem != "__init__"]

    @property
    def page(self) -> Path:
        """The file of its page."""
        return (self.folder or Path()).joinpath(self.about.page).resolve()


@cache
def papers() -> dict[str, Paper]:
    """All papers by name: ours, then those of other packages. UserError if two have one name."""
    ours = [path for path in sorted(_OURS.iterdir()) if (path / "__init__.py").is_file()]
    found = {path.name: _read(path.name, f"{_PACKAGE}.{path.name}", path) for path in ours}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name in found:
            raise UserError(
                f"{entry.value} and {found[entry.name].package} are both papers called {entry.name!r}; rename the "
                f"entry point of group {GROUP} in one of these packages."
            )
        found[entry.name] = _of_package(entry)
    return found


def paper(name: str) -> Paper:
    """Return a known paper. UserError if its package cannot be used."""
    if papers()[name].fault:
        raise UserError(papers()[name].fault)
    return papers()[name]


def bound(path: Path) -> Mapping[str, ast.expr | None]:
    """The names that a module binds, each with its expression; None for a part of a tuple. SyntaxError."""
    bindings: dict[str, ast.expr | None] = {}
    for statement in ast.parse(path.read_bytes(), path.name).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name):
                bindings[target.id] = statement.value
            elif isinstance(target, ast.Tuple):
                bindings |= {each.id: None for each in target.elts if isinstance(each, ast.Name)}
    return bindings


def _of_package(entry: EntryPoint) -> Paper:
    where = f"paper {entry.name} of package {entry.value}"
    if not _NAME.fullmatch(entry.name):
        rule = "a paper's name has a-z, 0-9 and _ only; rename the entry point."
        return Paper(entry.name, entry.value, None, fault=f"{where}: {rule}")
    try:
        spec = importlib.util.find_spec(entry.value)
    except Exception as error:  # of a package around it, which this imports
        return Paper(entry.name, entry.value, None, fault=f"{where} cannot be loaded: {fault(error)}.")
    if spec is None or not spec.submodule_search_locations:
        rule = "it is no package with a folder; correct the entry point, or install it again."
        return Paper(entry.name, entry.value, None, fault=f"{where}: {rule}")
    return _read(entry.name, entry.value, Path(spec.submodule_search_locations[0]))


def _read(name: str, package: str, folder: Path) -> Paper:
    file = folder / "__init__.py"
    where = f"paper {name} ({file})"
    try:
        bindings = bound(file)
        wanted = {field: bindings.get(field.upper()) for field in About.model_fields}
        constants = {field: _constant(field, value) for field, value in wanted.items() if value is not None}
        return Paper(name, package, folder, validate(About, constants, where))
    except UserError as error:
        return Paper(name, package, folder, fault=str(error))
    except (OSError, SyntaxError, ValueError) as error:
        return Paper(name, package, folder, fault=f"{where} cannot be read: {fault(error, str(folder))}.")


def _constant(field: str, value: ast.expr) -> object:
    try:
        return ast.literal_eval(value)
    except ValueError:
        raise ValueError(f"{field.upper()} is no plain constant; write its value out") from None
