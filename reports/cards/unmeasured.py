"""A card's claims before anything has been measured: names that nothing has are found without a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.by_device import schema_of
from harness.experiments.experiment import Experiment
from harness.experiments.grid import checked_cells
from harness.metrics.vocabulary import metric_named
from reports.cards.card import Figure, blamed_on
from reports.claims.claim import Claim
from reports.claims.quantities import Measure
from workloads.errors import UserError, unknown


def check_claims(figure: Figure) -> None:
    """Check that each claim of a card reads metrics, panels and points that the card has. UserError for the first that
    does not. What a claim reads by code of its own is not checked."""
    with blamed_on(figure.name):
        panels = _Panels(figure.experiments)
    for claim in figure.claims:
        with blamed_on(figure.name, f", claim {claim.id}"):
            for measure in _measures(claim):
                _check(measure, panels)


def _measures(claim: Claim) -> Iterator[Measure]:
    yield claim.measure  # type: ignore[misc]  # or a tally, whose keys are runs
    yield from (claim.untold.over or {}).values() if claim.untold is not None else ()


def _check(measure: Measure, panels: "_Panels") -> None:
    panels.read = False
    try:
        values = measure(panels)  # type: ignore[arg-type]
    except UserError:
        raise
    except Exception:  # code of the card reads what only a run has
        return
    if not values and not panels.read:
        raise UserError("no point of the card has this engine and these parameters")


class _Panels(dict[str, "_Run"]):
    """Panel -> its points. `read`: whether a value of one was asked for."""

    read = False

    def __init__(self, experiments: Mapping[str, Experiment]) -> None:
        super().__init__({name: _Run(self, each) for name, each in experiments.items()})

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __missing__(self, name: str) -> Any:
        raise unknown("panel", name, self)


class _Run:
    """The points of a panel, with one seed."""

    def __init__(self, panels: _Panels, experiment: Experiment) -> None:
        cells = checked_cells(experiment, schema_of(experiment))
        self.points = [_Point(panels, cell.engine, cell.settings) for cell in cells]


@dataclass(frozen=True)
class _Point:
    panels: _Panels
    engine: str
    params: Mapping[str, object]
    seed = 0

    @property
    def point(self) -> "_Point":
        return self

    @property
    def error(self) -> str:
        self.panels.read = True
        return "not measured"

    def value(self, metric: str) -> None:
        """Return no value. UserError for a name that no metric has."""
        self.panels.read = True
        name = metric_named(metric, "metric")
        if name != metric:
            raise UserError(f"unknown metric {metric!r}. Did you mean {name!r}?")
