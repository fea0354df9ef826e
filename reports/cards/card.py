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
    CLAIMS        id -> what the paper says, see `reports.claims.stated`
    draw          panels -> Picture | LeftOut, `panels` being panel -> Run; a card of tables has none. See
                  `reports.figures.forms`
    NEEDS         what a measurement needs that this program has not, such as weights: a run of the group skips it
                  and says so
    GIVE          the parameters with which a user brings that (`--set`), to run this card by itself on a real device

A card imports each name from the module that defines it. A bench card is imported to be listed, and so imports
little.

Its name is `<group>-<figure>`, so `liveserve-fig11-left` stands in `liveserve/fig11_left.py`. Figures of a group
share a results directory, and are measured and shown in the order of their file names, fig4 before fig10. A group is a
package, of ours or of others (`reports.cards.papers`).

The list of figure cards is read from their text (`index`), and a card is imported when it is asked for: importing all
takes too long for a list, and a faulty card harms no other.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cards.papers import bound, paper, papers
from workloads.errors import UserError, unknown
from workloads.plugins import fault

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from reports.claims.claim import Claim
    from reports.claims.sensitivity import Sensitivity
    from reports.figures.forms import Draw

_BENCHES = ("reports.cards.bench", "reports.papers.vllm_omni.anchors")


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
    """The text of a figure card. `needs`: whether a user has to bring something; `fault`: why it cannot be read, in
    words, which its title says too; empty if it can."""

    name: str
    group: str
    title: str
    needs: bool
    module: str
    fault: str = ""


class _Figures(Mapping[str, Figure]):
    """Figure cards by name. UserError for one that cannot be imported."""

    def __getitem__(self, name: str) -> Figure:
        return _figure(index()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(index())

    def __len__(self) -> int:
        return len(index())


@cache
def cards() -> dict[str, Card]:
    """All bench cards by name."""
    modules = [importlib.import_module(name) for name in _BENCHES]
    return {
        module.EXPERIMENT.name: Card(module.EXPERIMENT, module.QUICK, getattr(module, "REAL", {}), module)
        for module in modules
    }


@cache
def index() -> dict[str, Listed]:
    """The figure cards by name, group by group, each in its order; none of them is imported."""
    entries = [_listed(group, module, path) for group, each in papers().items() for module, path in each.modules]
    return {listed.name: listed for _, listed in sorted(entry for entry in entries if entry is not None)}


def figures() -> Mapping[str, Figure]:
    """The same; a card is imported when it is looked up."""
    return _Figures()


def check_group(name: str) -> None:
    """Raise UserError for an unknown group of cards, and for a paper that cannot be used."""
    if name in papers():
        paper(name)
    if name not in (known := group_names()):
        raise unknown("group of cards", name, known)


def group(name: str) -> list[Figure]:
    """Return the figure cards of a group; UserError for an unknown name, and for a card that cannot be imported."""
    check_group(name)
    return [figures()[each] for each in figures() if _group(each) == name]


def chosen(name: str) -> Card | list[Figure]:
    """Return the card of a name: a bench card, one figure or a group of them. UserError for an unknown name."""
    if name in cards():
        return cards()[name]
    if name in figures():
        return [figures()[name]]
    if name in (groups := group_names()) or name in papers():
        return group(name)
    raise unknown("card", name, [*cards(), *groups, *figures()])


def known() -> list[str]:
    """The names of all cards, groups and papers."""
    return [*cards(), *figures(), *group_names(), *papers()]


def group_names() -> list[str]:
    """The groups that have figure cards."""
    return list(dict.fromkeys(map(_group, figures())))


@contextmanager
def blamed_on(name: str, of: str = "") -> Iterator[None]:
    """Raise UserError about this figure card for an exception in its code; `of` names the part of the card."""
    try:
        yield
    except Exception as error:
        module = index()[name].module if name in index() else ""
        folder = str(papers()[_group(name)].folder) if module else ""
        raise UserError(f"card {name}{of}: {fault(error, folder)}. Correct {module or 'the card'}.") from error


def _group(card: str) -> str:
    return card.partition("-")[0]


@cache
def _figure(listed: Listed) -> Figure:
    from reports.claims.stated import named

    about = paper(listed.group).about
    if listed.fault:
        raise UserError(f"card {listed.name}: {listed.fault}. Correct {listed.module}.")
    with blamed_on(listed.name):
        module = importlib.import_module(listed.module)
        return Figure(
            name=listed.name,
            group=listed.group,
            title=module.TITLE,
            experiments=_by_name(module, "EXPERIMENTS"),
            quick=_by_name(module, "QUICK"),
            claims=named(_by_name(module, "CLAIMS")),
            draw=getattr(module, "draw", None),
            sensitivity=getattr(module, "SENSITIVITY", None),
            order_seed=about.order_seed,
            needs=getattr(module, "NEEDS", ""),
            give=getattr(module, "GIVE", ()),
            against=about.against,
            reference=about.reference,
        )


def _by_name(module: ModuleType, name: str) -> Mapping[str, Any]:
    value = getattr(module, name, {})
    if not isinstance(value, Mapping):
        raise UserError(f"{name} is a {type(value).__name__}; write a dictionary, with a name for each of them")
    return value


def _listed(group: str, module: str, path: Path) -> tuple[tuple[Any, ...], Listed] | None:
    """Return the place of a card among all, and what its text says; None for a module that is no card."""
    name, order = f"{group}-{path.stem.replace('_', '-')}", re.split(r"(\d+)", path.stem)
    place = [int(part) if part.isdigit() else part for part in order]
    try:
        names = bound(path)
    except (OSError, SyntaxError, ValueError) as error:
        wrong = f"cannot be read: {fault(error, str(path.parent))}"
        return (group, False, place), Listed(name, group, wrong, False, module, wrong)
    if "EXPERIMENTS" not in names:
        return None
    title, wrong = names.get("TITLE"), ""
    if not (isinstance(title, ast.Constant) and isinstance(title.value, str)):
        title, wrong = ast.Constant("TITLE is no plain text"), "TITLE is no plain text"
    last = "SENSITIVITY" in names
    return (group, last, place), Listed(name, group, str(title.value), "NEEDS" in names, module, wrong)
