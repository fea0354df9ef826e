"""Cards: named experiments that come with their figures, one module each.

`reports/bench.py` is the default bench; `reports/papers/<system>/<figure>.py` are the figures of published
systems. A card module declares `EXPERIMENT`, whose name and title are the card's, `QUICK`, the settings of
`--quick`, and perhaps `REAL`, the settings of real devices: models that such a machine can hold, and a
workload that does not take hours on the wall clock.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from harness.experiment import Experiment
from workloads.errors import UserError, nearest


@dataclass(frozen=True)
class Card:
    """One card; `quick` and `real` are applied like `--set`, on one seed."""

    experiment: Experiment
    quick: dict[str, str]
    real: dict[str, str]
    module: ModuleType


@cache
def cards() -> dict[str, Card]:
    """All cards by name."""
    found = {}
    for name in _module_names():
        module = importlib.import_module(name)
        if hasattr(module, "EXPERIMENT"):
            found[module.EXPERIMENT.name] = Card(
                module.EXPERIMENT, module.QUICK, getattr(module, "REAL", {}), module
            )
    return found


def card(name: str) -> Card:
    """The card of that name; UserError if there is none."""
    if name not in cards():
        raise UserError(f"unknown card {name!r}.{nearest(name, cards())}")
    return cards()[name]


def _module_names() -> Iterator[str]:
    yield "reports.bench"
    papers = Path(__file__).parent / "papers"
    for module in pkgutil.walk_packages([str(papers)], "reports.papers."):
        if not module.ispkg:
            yield module.name
