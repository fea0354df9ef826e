"""A group of figure cards as a reader sees it: the runs of every panel, from the results directory they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from harness.records.results import Panel, read_collection, read_panel
from reports.cards import card as known
from reports.cards.card import Figure, blamed_on
from reports.claims.grading import Graded, grade
from reports.claims.sensitivity import Cell, matrix
from reports.runs.measured import Measured, Run, run_of
from workloads.errors import UserError

NO_PREVIEW = (
    "Measured with other settings than the cards have (--quick or --set): the full run may have other outcomes."
)


@dataclass(frozen=True, eq=False)
class Shown:
    """One card with its measured runs; `panels` is empty when it was not run."""

    figure: Figure
    panels: Mapping[str, Run]

    @cached_property
    def points(self) -> list[Measured]:
        """Every point once, finished and failed."""
        by_id = {point.point.id: point for run in self.panels.values() for point in run.points}
        return list(by_id.values())

    @property
    def failed(self) -> list[Measured]:
        return [point for point in self.points if point.error is not None]

    @property
    def altered(self) -> bool:
        """Return whether a panel was run with other settings than the card's."""
        experiments = self.figure.experiments
        return any(
            (run.experiment.set, run.experiment.grid) != (experiments[name].set, experiments[name].grid)
            for name, run in self.panels.items()
            if name in experiments
        )

    @cached_property
    def claims(self) -> list[Graded]:
        """The card's claims, graded."""
        graded = []
        for claim in self.figure.claims:
            with blamed_on(self.figure.name, f", claim {claim.id}"):
                graded.append(grade(claim, self.figure.name, self.panels, self.figure.needs))
        return graded


@dataclass(frozen=True, eq=False)
class Group:
    """A results directory of figure cards."""

    folder: Path
    name: str
    cards: Sequence[Shown]
    """The cards of this run. A run of all cards also has the cards whose needs are not met."""
    not_asked: Sequence[str] = ()
    """The names of the others. They are not imported, so a faulty one harms no report."""

    @cached_property
    def claims(self) -> list[Graded]:
        return [claim for card in self.cards for claim in card.claims]

    @property
    def caveat(self) -> str:
        """Return the remark that belongs to the group's outcomes; "" for none."""
        return NO_PREVIEW if any(card.altered for card in self.cards) else ""

    @cached_property
    def points(self) -> list[Measured]:
        """Every point of every card once."""
        return list({point.point.id: point for card in self.cards for point in card.points}.values())

    @property
    def sensitivity(self) -> list[tuple[str, Graded, dict[str, Cell]]]:
        """(card, claim as graded without changes, variation -> cell) over the cards that vary constants."""
        graded = {(claim.card, claim.claim.id): claim for claim in self.claims}
        return [
            (name, graded[name, claim.id], cells)
            for card in self.cards
            if card.figure.sensitivity is not None and card.panels
            for name, claim, cells in matrix(card.figure.sensitivity, card.panels)
            if (name, claim.id) in graded
        ]


def load_group(folder: Path) -> Group:
    """Read a results directory of figure cards. UserError if it is not one, or a record in it is damaged or newer."""
    collection = read_collection(folder)
    if collection.name not in known.group_names():
        raise UserError(f"{folder} holds the cards of {collection.name!r}, which this version does not have.")
    listed = [each for each in known.index().values() if each.group == collection.name]
    others = [each for each in listed if not collection.cards.get(each.name)]
    whole = all(each.needs for each in others)
    cards = []
    for name in [each.name for each in listed if whole or each not in others]:
        figure, stored = known.figures()[name], collection.cards.get(name, {})
        # In the card's own order: JSON keeps its keys sorted.
        panels = [*(n for n in figure.experiments if n in stored), *(n for n in stored if n not in figure.experiments)]
        cards.append(Shown(figure, {panel: _run(folder, stored[panel]) for panel in panels}))
    return Group(folder, collection.name, cards, [] if whole else [each.name for each in others])


def _run(folder: Path, panel: Panel) -> Run:
    # A record has the axes of whichever panel was the first to ask for the point.
    axes = {"axes": tuple(panel.experiment.grid)}
    records = read_panel(folder, panel)
    return run_of(
        folder, panel.experiment, [replace(each, point=each.point.model_copy(update=axes)) for each in records]
    )
