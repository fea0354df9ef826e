"""The parts of reports that are of live runs. Replays over sockets, or with kept sound, have its parts too."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from harness.live.live_experiment import asked
from reports.live import (
    judged,
    latencies,
    live_record,
    live_scrape,
    live_send_delay,
    live_time,
    live_verdict,
    server_side,
)
from reports.runs.measured import Run
from reports.runs.notes import notes
from reports.runs.provenance import Fact, device, fact
from reports.runs.side import Side


def served(run: Run) -> list[Fact]:
    """Return the facts on the server that was called."""
    targets = dict.fromkeys(_target(point.params) for point in run.points)
    engine: Fact = {"label": "Engine", "value": run.points[0].point.engine}
    return [engine, *fact("Target", targets), *fact("Server build", [run.experiment.label]), device(run)]


def _target(params: Mapping[str, Any]) -> str:
    model = f", model {params['model']}" if params.get("model") else ""
    return f"{params['url']}, dialect {params['dialect']}{model}"


def show_verdict(console: Console, run: Run, made: live_verdict.LiveVerdict | None) -> None:
    """Print the verdict, which comes first."""
    if (verdict := made or live_verdict.live_verdict(run)) is not None:
        live_verdict.show_verdict(console, verdict)


def show_sides(console: Console, run: Run) -> None:
    """Print the delays that the server reports next to those of its clients, and notes on what was measured."""
    if (table := latencies.latencies_table(run)) is not None:
        console.print(table)
    if (table := server_side.sides_table(run)) is not None:
        console.print(table)
    for note in notes(run):
        console.print(note, highlight=False, soft_wrap=True)


CALLS = Side(
    settings=asked,
    served=served,
    openings=(judged.opening,),
    sections=(latencies.SECTION, live_verdict.CAPACITY, live_record.GENERATOR, server_side.SECTION, live_record.SOUNDS),
    pictures=(live_time.draw, live_time.wait_parts, live_send_delay.draw, live_scrape.draw),
    notes=notes,
    before_table=show_verdict,
    after_table=show_sides,
)
