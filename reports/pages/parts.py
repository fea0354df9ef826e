"""The parts of a report, in the order of the page. No other module of pages names those of live runs or of replays."""

from collections.abc import Callable

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
from reports.live import (
    judged,
    live_record,
    live_scrape,
    live_send_delay,
    live_time,
    live_verdict,
    server_side,
)
from reports.runs import find, policies, useful
from reports.runs.measured import Run

OPENINGS = (judged.opening, find.opening, headline.opening)
"""The first that a run has begins its report."""
SECTIONS = (
    live_verdict.CAPACITY,
    find.SECTION,
    useful.SECTION,
    policies.SECTION,
    live_record.GENERATOR,
    server_side.SECTION,
    live_record.SOUNDS,
)
PICTURES: tuple[tuple[Callable[[Run], bool], tuple[Callable[..., Picture | LeftOut], ...]], ...] = (
    (lambda run: run.live or run.searches is not None, (search.draw,)),
    (lambda run: run.live, (live_time.draw, live_time.wait_parts, live_send_delay.draw, live_scrape.draw)),
    (lambda run: run.frames, (dashboard.draw, pool.draw, admission.draw)),
    (lambda run: run.duplex and not run.frames, (turn_taking.draw, turn_taking.trade, call_timeline.draw)),
    (lambda run: not run.frames, (latency.draw, curves.throughput, curves.continuity, curves.wasted_tokens)),
    (lambda run: not (run.frames or run.duplex), (generation.draw, timeline.draw)),
    (lambda _: True, (gpu.draw,)),
)
"""The runs that have them, and the pictures."""
BESIDE_PAPER = (latency.draw, curves.continuity, curves.wasted_tokens)
"""Pictures that have the published numbers of a card, too."""
