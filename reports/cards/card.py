"""Cards: named experiments that come with their figures, one module each.

A *bench* card declares `EXPERIMENT`, whose name and title are the card's, `QUICK`, the settings of `--quick`, and
perhaps `REAL`, the settings of real devices: models that such a machine can hold, and a workload that does not take
hours on the wall clock. Its report is the one of every experiment. `reports/cards/bench.py` is the default one.

A *figure* card, `reports/papers/<group>/<figure>.py`, is one published figure or table. It declares, in this order:

    TITLE         one line for people, as plain text: it is read without importing the card
    EXPERIMENTS   panel -> Experiment; a point that several panels or cards have is measured once
    QUICK         the settings of `--quick`; a panel that lacks one of these parameters goes without it, and one that
                  does not vary it without several values of it; a card that is small anyway has none
    PAPER         the published numbers that claims or picture are made with, in whatever form they want them
    CLAIMS        id -> what the paper says, see `reports.claims.claim`
    draw          panels -> Picture | LeftOut, `panels` being panel -> Run; a card of tables has none. See
                  `reports.figures.forms`
    NEEDS         what a measurement needs that this program has not, such as weights: a run of the group skips it
                  and says so
    GIVE          the parameters with which a user brings that (`--set`), to run this card by itself on a real device

A card imports each name from the module that defines it. A bench card among papers is imported to be listed, and so
imports little.

Its name is `<group>-<figure>`, so `liveserve-fig11-left` stands in `liveserve/fig11_left.py`. Figures of a group
share a results directory, and are measured and shown in the order of their file names, fig4 before fig10; a group
whose `__init__.py` has an `ORDER_SEED` is measured in an order shuffled with that, one that has `AGAINST` holds its
claims against that instead of a paper, and `REFERENCE` names the paper of one that has a paper.

The list of figure cards is read from their text (`index`), because importing them takes too long for a list.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from workloads.errors import unknown

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from reports.claims.claim import Claim
    from reports.claims.sensitivity import Sensitivity
    from reports.figures.forms import Draw

_FOLDER = Path(__file__).parents[1]
_PACKAGE = "reports"


@dataclass(frozen=True)
class Card:
    """A bench card; `quick` and `real` are applied like `--set`, on one seed."""

    experiment: Experiment
    quick: dict[str, str]
    real: dict[str, str]
    module: ModuleType


@dataclass(frozen=True)
class Figure:
    """A figure card."""

    name: str
    group: str
    title: str
    experiments: Mapping[str, Experiment]
    quick: Mapping[str, str]
    claims: Sequence[Claim]
    draw: Draw | None
    sensitivity: Sensitivity | None
    """Set for a card that asks the claims of others again under changed constants."""
    order_seed: int | None = None
    """Seed of the order in which the points of the group run, unless --shuffle sets another. None: the cards' own
    order."""
    needs: str = ""
    """Resources that the card needs and this program lacks; empty for a card that runs."""
    give: tuple[str, ...] = ()
    """The parameters that bring it."""
    against: str = "the paper"
    """Source of the numbers that the claims compare ours with."""
    reference: str = ""
    """Reference of the paper, if there is one."""


class Listed(NamedTuple):
    """The text of a figure card. `needs`: whether a user has to bring something."""

    name: str
    group: str
    title: str
    needs: bool
    module: str


@cache
def cards() -> dict[str, Card]:
    """All bench cards by name."""
    modules = [importlib.import_module(module) for module, bound in _texts() if "EXPERIMENT" in bound]
    return {
        module.EXPERIMENT.name: Card(module.EXPERIMENT, module.QUICK, getattr(module, "REAL", {}), module)
        for module in modules
    }


@cache
def index() -> dict[str, Listed]:
    """The figure cards by name, group by group, each in its order; none of them is imported."""
    entries = [
        (_place(module, "SENSITIVITY" in bound), _listed(module, bound))
        for module, bound in _texts()
        if "EXPERIMENTS" in bound
    ]
    return {listed.name: listed for _, listed in sorted(entries)}


@cache
def figures() -> dict[str, Figure]:
    """The same, imported."""
    return {name: _figure(listed) for name, listed in index().items()}


def groups() -> dict[str, list[Figure]]:
    """The figure cards of each group."""
    by_group: dict[str, list[Figure]] = {}
    for figure in figures().values():
        by_group.setdefault(figure.group, []).append(figure)
    return by_group


def group(name: str) -> list[Figure]:
    """Return the figure cards of a group; UserError for an unknown name."""
    if name not in _group_names():
        raise unknown("group of cards", name, _group_names())
    return groups()[name]


def chosen(name: str) -> Card | list[Figure]:
    """Return the card of a name: a bench card, one figure or a group of them. UserError for an unknown name."""
    if name in cards():
        return cards()[name]
    if name in index():
        return [figures()[name]]
    if name in _group_names():
        return groups()[name]
    raise unknown("card", name, [*cards(), *_group_names(), *index()])


def _group_names() -> list[str]:
    return list(dict.fromkeys(listed.group for listed in index().values()))


def _figure(listed: Listed) -> Figure:
    from reports.claims.stated import named

    module = importlib.import_module(listed.module)
    package = importlib.import_module(listed.module.rpartition(".")[0])
    return Figure(
        name=listed.name,
        group=listed.group,
        title=module.TITLE,
        experiments=module.EXPERIMENTS,
        quick=getattr(module, "QUICK", {}),
        claims=named(getattr(module, "CLAIMS", {})),
        draw=getattr(module, "draw", None),
        sensitivity=getattr(module, "SENSITIVITY", None),
        order_seed=getattr(package, "ORDER_SEED", None),
        needs=getattr(module, "NEEDS", ""),
        give=getattr(module, "GIVE", ()),
        against=getattr(package, "AGAINST", Figure.against),
        reference=getattr(package, "REFERENCE", ""),
    )


def _listed(module: str, bound: Mapping[str, ast.expr | None]) -> Listed:
    *_, group, file = module.split(".")
    title = bound["TITLE"]
    assert isinstance(title, ast.Constant), f"{module}: TITLE is no plain text"
    return Listed(f"{group}-{file.replace('_', '-')}", group, str(title.value), "NEEDS" in bound, module)


def _place(module: str, last: bool) -> tuple[Any, ...]:
    *_, group, file = module.split(".")
    return group, last, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file)]


@cache
def _texts() -> list[tuple[str, dict[str, ast.expr | None]]]:
    """Every module that may be a card, with the names that it binds and what to."""
    paths = [_FOLDER / "cards" / "bench.py", *sorted((_FOLDER / "papers").glob("*/*.py"))]
    return [
        (".".join((_PACKAGE, *path.relative_to(_FOLDER).with_suffix("").parts)), _bound(path))
        for path in paths
    ]


def _bound(path: Path) -> dict[str, ast.expr | None]:
    bindings: dict[str, ast.expr | None] = {}
    for statement in ast.parse(path.read_bytes()).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name):
                bindings[target.id] = statement.value
            elif isinstance(target, ast.Tuple):
                bindings |= {each.id: None for each in target.elts if isinstance(each, ast.Name)}
    return bindings
