"""Claims that keep their sign when a constant of the model, or a parameter that the paper leaves open, is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.experiments.experiment import Experiment
from harness.metrics.stats import Spread
from reports.claims.claim import Claim
from reports.claims.grading import summed_up
from reports.claims.quantities import Panels
from reports.claims.stated import named

if TYPE_CHECKING:
    from reports.runs.measured import Run

KEPT, UNSURE, LOST, NOT_MEASURED = "kept", "unsure", "lost", "not measured"


@dataclass(frozen=True)
class Sensitivity:
    """Claims of cards to ask again: for each variation, the panels of their cards once more."""

    panels: Mapping[tuple[str, str], Mapping[str, str]]
    """(card, variation) -> the card's panel -> ours."""
    claims: Mapping[str, tuple[Claim, ...]]
    """card -> its claims that have a direction."""

    @property
    def variations(self) -> list[str]:
        return list(dict.fromkeys(variation for _, variation in self.panels))


@dataclass(frozen=True)
class Cell:
    """One claim under one variation."""

    sign: str
    """kept: the interval is on the claimed side of "no effect"; lost: on the other side; unsure: on both."""
    spread: Spread


def varied(
    cards: Mapping[str, tuple[Mapping[str, Experiment], Mapping[str, Claim]]],
    variations: Mapping[str, Mapping[str, Any]],
    **changes: Any,
) -> tuple[dict[str, Experiment], Sensitivity]:
    """EXPERIMENTS and SENSITIVITY of a card from the EXPERIMENTS and CLAIMS of others, by card name.

    `variations`: what to call it -> parameters to set; an engine without the parameter is measured as it is.
    `changes` replace fields of every experiment, such as seeds=[0, 1, 2].
    """
    experiments: dict[str, Experiment] = {}
    panels: dict[tuple[str, str], dict[str, str]] = {}
    for card, (originals, _) in cards.items():
        for variation, settings in variations.items():
            names = {panel: f"{card} {panel}, {variation}" for panel in originals}
            panels[card, variation] = names
            for panel, original in originals.items():
                data = {**original.model_dump(), **changes}
                data["set"] = {**original.set, **settings}
                data["grid"] = {name: axis for name, axis in original.grid.items() if name not in settings}
                experiments[names[panel]] = Experiment.model_validate(data)
    claims = {
        card: tuple(claim for claim in named(card_claims) if claim.neutral is not None)
        for card, (_, card_claims) in cards.items()
    }
    return experiments, Sensitivity(panels, claims)


def matrix(of: Sensitivity, runs: Mapping[str, Run]) -> list[tuple[str, Claim, dict[str, Cell]]]:
    """(card, claim, variation -> cell) for each claim, from the runs of the sensitivity card by its panels."""
    rows = []
    for card, claims in of.claims.items():
        for claim in claims:
            cells = {}
            for variation in of.variations:
                names = of.panels.get((card, variation))
                if names is None:  # asked of other cards only
                    continue
                panels = {panel: runs[name] for panel, name in names.items() if name in runs}
                cells[variation] = _cell(claim, panels)
            rows.append((card, claim, cells))
    return rows


def _cell(claim: Claim, panels: Panels) -> Cell:
    spread = summed_up(claim, claim.measure(panels) if panels else {})
    if spread.median is None:
        return Cell(NOT_MEASURED, spread)
    sides = {claim.on_its_side(value) for value in spread.interval or (spread.median,)}
    return Cell(UNSURE if len(sides) == 2 else KEPT if sides == {True} else LOST, spread)
