"""The two sides of reports, replays and live runs. A side is imported for its own runs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workloads.deferred import Deferred
from workloads.devices import LIVE

if TYPE_CHECKING:
    from rich.console import Console

    from harness.experiments.experiment import Experiment
    from reports.figures.picture import LeftOut, Picture
    from reports.runs.measured import Run
    from reports.runs.part import Opening, Section


def _nothing(*_: Any) -> None:
    """Print nothing."""


@dataclass(frozen=True)
class Side:
    """One side of reports.

    `settings`: the settings shared by every row, as text. `served`: facts on the server. `deployments` and
    `constants`: titles of modelled servers, and their constants by `fitted` and `chosen`. `openings`: the first that a
    run has begins its report. `notes`: sentences on what was measured otherwise than asked. `pictures` stand before the
    pictures of every run, `details` after them. `before_table`, `after_table`: print to a terminal; the first takes a
    verdict that is made already, or None.
    """

    settings: Callable[[Experiment], str]
    served: Callable[[Run], list[dict[str, Any]]]
    openings: Sequence[Callable[[Run], Opening | None]]
    sections: Sequence[Section]
    notes: Callable[[Run], list[str]]
    pictures: Sequence[Callable[[Run], Picture | LeftOut]] = ()
    details: Sequence[Callable[[Run], Picture | LeftOut]] = ()
    deployments: Callable[[Run], list[str]] = lambda run: []
    constants: Callable[[Run], Mapping[str, list[Any]]] = lambda run: {"fitted": [], "chosen": []}
    before_table: Callable[[Console, Run, Any], None] = _nothing
    after_table: Callable[[Console, Run], None] = _nothing


CALLS = Deferred("reports.live.side:CALLS", loaded=False)
REPLAYS = Deferred("reports.replays.side:REPLAYS", loaded=False)


def side_of(experiment: Experiment) -> Side:
    """Return the side that measured the experiment."""
    side: Side = (CALLS if experiment.device == LIVE else REPLAYS).load()
    return side
