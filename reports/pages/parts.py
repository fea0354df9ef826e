"""The parts of a report, in the order of the page: the parts of its side, and the parts of every run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.records.saved_calls import CALL
from reports.figures import (
    admission,
    call_timeline,
    curves,
    dashboard,
    generation,
    headline,
    latency,
    pool,
    search,
    timeline,
    turn_taking,
)
from reports.figures.picture import LeftOut, Picture
from reports.runs import policies, useful
from reports.runs.measured import Run
from reports.runs.part import Opening, Section
from reports.runs.side import CALLS, Side, side_of
from workloads.devices import LIVE, SOCKET_DEVICES

Draw = Callable[..., Picture | LeftOut]
PICTURES: tuple[tuple[Callable[[Run], bool], tuple[Draw, ...]], ...] = (
    (lambda run: run.frames, (dashboard.draw, pool.draw, admission.draw)),
    (lambda run: run.duplex and not run.frames, (turn_taking.draw, turn_taking.trade, call_timeline.draw)),
    (lambda run: not run.frames, (latency.draw, curves.throughput, curves.continuity, curves.wasted_tokens)),
    (lambda run: not (run.frames or run.duplex), (generation.draw, timeline.draw)),
)
"""The runs that have them, and the pictures."""
BESIDE_PAPER = (latency.draw, curves.continuity, curves.wasted_tokens)
"""Pictures that have the published numbers of a card, too."""


class Parts(NamedTuple):
    """`openings`: the first that a run has begins its report. `pictures`: those after the opening's."""

    openings: Sequence[Callable[[Run], Opening | None]]
    sections: Sequence[Section]
    pictures: Sequence[Draw]


def parts_of(run: Run) -> Parts:
    """Return the parts that a run may have. Replays over sockets or with kept sound have both sides'."""
    run_side = side_of(run.experiment)
    kept = any(next(point.record.folder.glob(f"{CALL}*"), None) for point in run.points)  # sound of calls
    sides: list[Side] = [run_side]
    if run.experiment.device != LIVE and (kept or run.live or run.experiment.device in SOCKET_DEVICES):
        sides.insert(0, CALLS.load())
    searched = (search.draw,) if run.live or run.searches is not None else ()
    return Parts(
        [*(opening for side in sides for opening in side.openings), headline.opening],
        [*(section for side in sides for section in side.sections), useful.SECTION, policies.SECTION],
        [
            *searched,
            *(draw for side in sides for draw in side.pictures if run.live),
            *(draw for when, draws in PICTURES if when(run) for draw in draws),
            *run_side.details,
        ],
    )
