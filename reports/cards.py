"""Cards: named experiments that come with their figures, one module each.

A *bench* card declares `EXPERIMENT`, whose name and title are the card's, `QUICK`, the settings of `--quick`,
and perhaps `REAL`, the settings of real devices: models that such a machine can hold, and a workload that does
not take hours on the wall clock. It is shown by the report that every experiment has. `reports/bench.py` is
the default one.

A *figure* card, `reports/papers/<group>/<figure>.py`, is one published figure or table. It declares, in this
order:

    TITLE         one line for people
    EXPERIMENTS   panel -> Experiment; a point that several panels or cards have is measured once
    QUICK         the settings of `--quick`; a panel that lacks one of these parameters goes without it, and one that
                  does not vary it without several values of it
    PAPER         the published numbers, in whatever form `draw` wants them
    CLAIMS        what the paper says of them, see `reports.claims`
    draw          (panels, PAPER) -> Picture | LeftOut, `panels` being panel -> Run; a card of tables has none
    NEEDS         what a measurement needs that this program has not, such as weights: a run of the group skips it
                  and says so
    GIVE          the parameters with which a user brings that (`--set`), to run this card by itself on a real device

Its name is `<group>-<figure>`, so `liveserve-fig11-left` stands in `liveserve/fig11_left.py`. Figures of a group
share a results directory, and are measured and shown in the order of their file names, fig4 before fig10; a group
whose `__init__.py` has an `ORDER_SEED` is measured in an order shuffled with that, and one that has `AGAINST` holds its
claims against that instead of a paper.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.experiment import Experiment
from reports.claims import Claim
from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.sensitivity import Sensitivity
from workloads.errors import UserError, nearest

Draw = Callable[[Mapping[str, Run], Any], Picture | LeftOut]


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
    paper: Any
    claims: Sequence[Claim]
    draw: Draw | None
    sensitivity: Sensitivity | None
    """Set for a card that asks the claims of others again under changed constants."""
    order_seed: int | None = None
    """Of the order in which points of its group are run unless --shuffle says otherwise; None: as they stand."""
    needs: str = ""
    """What it needs to be measured that this program has not; empty for a card that runs."""
    give: tuple[str, ...] = ()
    """The parameters that bring it."""
    against: str = "the paper"
    """Whose numbers its claims hold ours against."""


@cache
def cards() -> dict[str, Card]:
    """All bench cards by name."""
    modules = [module for _, module in _modules() if hasattr(module, "EXPERIMENT")]
    return {
        module.EXPERIMENT.name: Card(module.EXPERIMENT, module.QUICK, getattr(module, "REAL", {}), module)
        for module in modules
    }


@cache
def figures() -> dict[str, Figure]:
    """All figure cards by name, group by group, each in its order."""
    found = [_figure(name, module) for name, module in _modules() if hasattr(module, "EXPERIMENTS")]
    return {figure.name: figure for figure in sorted(found, key=_place)}


def groups() -> dict[str, list[Figure]]:
    """The figure cards of each group."""
    found: dict[str, list[Figure]] = {}
    for figure in figures().values():
        found.setdefault(figure.group, []).append(figure)
    return found


def group(name: str) -> list[Figure]:
    """The figure cards of a group; UserError if there is none of that name."""
    if name not in groups():
        raise UserError(f"unknown group of cards {name!r}.{nearest(name, groups())}")
    return groups()[name]


def chosen(name: str) -> Card | list[Figure]:
    """What a name stands for: a bench card, one figure or a group of them; UserError if nothing has it."""
    if name in cards():
        return cards()[name]
    if name in figures():
        return [figures()[name]]
    if name in groups():
        return groups()[name]
    raise UserError(f"unknown card {name!r}.{nearest(name, [*cards(), *groups(), *figures()])}")


def _figure(name: str, module: ModuleType) -> Figure:
    *_, group, file = name.split(".")
    package = importlib.import_module(name.rpartition(".")[0])
    return Figure(
        name=f"{group}-{file.replace('_', '-')}",
        group=group,
        title=module.TITLE,
        experiments=module.EXPERIMENTS,
        quick=module.QUICK,
        paper=module.PAPER,
        claims=module.CLAIMS,
        draw=getattr(module, "draw", None),
        sensitivity=getattr(module, "SENSITIVITY", None),
        order_seed=getattr(package, "ORDER_SEED", None),
        needs=getattr(module, "NEEDS", ""),
        give=getattr(module, "GIVE", ()),
        against=getattr(package, "AGAINST", Figure.against),
    )


def _place(figure: Figure) -> tuple[Any, ...]:
    parts = re.split(r"(\d+)", figure.name)
    return figure.group, figure.sensitivity is not None, [int(p) if p.isdigit() else p for p in parts]


def _modules() -> Iterator[tuple[str, ModuleType]]:
    yield "reports.bench", importlib.import_module("reports.bench")
    papers = Path(__file__).parent / "papers"
    for found in pkgutil.walk_packages([str(papers)], "reports.papers."):
        if not found.ispkg:
            yield found.name, importlib.import_module(found.name)
