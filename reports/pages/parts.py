"""The parts of a report, in the order of the page. No other module of pages names those of live runs or of replays."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from harness.records.saved_calls import CALL
from reports.figures import (
    admission,
    call_timeline,
    curves,
    dashboard,
    generation,
    gpu,
    headline,
    latency,
    pool,
    search,
    timeline,
    turn_taking,
)
from reports.figures.picture import LeftOut, Picture
from reports.runs import find, policies, useful
from reports.runs.measured import Run
from reports.runs.part import Opening, Section
from workloads.devices import SOCKET_DEVICES

Draw = Callable[..., Picture | LeftOut]
PICTURES: tuple[tuple[Callable[[Run], bool], tuple[Draw, ...]], ...] = (
    (lambda run: run.frames, (dashboard.draw, pool.draw, admission.draw)),
    (lambda run: run.duplex and not run.frames, (turn_taking.draw, turn_taking.trade, call_timeline.draw)),
    (lambda run: not run.frames, (latency.draw, curves.throughput, curves.continuity, curves.wasted_tokens)),
    (lambda run: not (run.frames or run.duplex), (generation.draw, timeline.draw)),
    (lambda _: True, (gpu.draw,)),
)
"""The runs that have them, and the pictures."""
BESIDE_PAPER = (latency.draw, curves.continuity, curves.wasted_tokens)
"""Pictures that have the published numbers of a card, too."""


class Parts(NamedTuple):
    """`openings`: the first that a run has begins its report. `pictures`: what stands before those of `PICTURES`."""

    openings: Sequence[Callable[[Run], Opening | None]]
    sections: Sequence[Section]
    pictures: Sequence[Draw]


def parts_of(run: Run) -> Parts:
    """Return the parts that a run may have. Those of calls over sockets are imported for such a run."""
    searched = (search.draw,) if run.live or run.searches is not None else ()
    kept = any(next(point.record.folder.glob(f"{CALL}*"), None) for point in run.points)  # sound of calls
    if not (run.live or kept or run.experiment.device in SOCKET_DEVICES):
        sections = (find.SECTION, useful.SECTION, policies.SECTION)
        return Parts((find.opening, headline.opening), sections, searched)
    from reports.live import (
        judged,
        live_record,
        live_scrape,
        live_send_delay,
        live_time,
        live_verdict,
        server_side,
    )

    calls = (live_time.draw, live_time.wait_parts, live_send_delay.draw, live_scrape.draw)
    return Parts(
        (judged.opening, find.opening, headline.opening),
        (
            live_verdict.CAPACITY,
            find.SECTION,
            useful.SECTION,
            policies.SECTION,
            live_record.GENERATOR,
            server_side.SECTION,
            live_record.SOUNDS,
        ),
        searched + (calls if run.live else ()),
    )


def pictures_of(run: Run) -> Iterator[Draw]:
    """Yield what draws the pictures of a run after the opening's, in their order."""
    yield from parts_of(run).pictures
    yield from (draw for when, draws in PICTURES if when(run) for draw in draws)
