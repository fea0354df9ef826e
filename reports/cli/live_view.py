"""The view of a live run while it goes on: a table that changes on a terminal, else a line each few seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.experiments.point import Point
from harness.experiments.run_order import Order, Outcome
from harness.live.run.run_progress import RunProgress
from reports.cli.measuring import check_libraries
from reports.cli.outcomes import announce, outcome_text

if TYPE_CHECKING:
    from harness.live.point import LivePoint

LINE_S = 5.0
"""Time between two lines without a terminal. [config]"""

See = Callable[[RunProgress], None]
Show = Callable[[Outcome], None]


class Calls:
    """Points by calls to an endpoint, one after the other. Implements `reports.cli.measuring.Side`."""

    again, loads = "run the same command again with --resume to continue.", ""

    def check(self, points: Sequence[Point]) -> None:
        check_libraries()

    def opened(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextmanager
    def executed(
        self, points_dir: Path, points: Sequence[Point], todo: Sequence[Point], timeout_s: float, order: Order
    ) -> Iterator[tuple[Callable[[Outcome], None], Iterator[Outcome]]]:
        from harness.live.run.live_executor import LiveExecutor

        with live_view(len(points), len(points) - len(todo)) as (see, show):
            executor = LiveExecutor(points_dir, timeout_s=timeout_s, order=order, show=see)
            with contextlib.closing(executor.run(cast("Sequence[LivePoint]", todo))) as outcomes:
                yield show, outcomes


@contextmanager
def live_view(total: int, finished: int, console: Console | None = None) -> Iterator[tuple[See, Show]]:
    """Yields what to call with the state of a run, and with every outcome; `finished` of `total` are measured."""
    console = console or Console(stderr=True)
    announce(console, finished, total, "each with its floor first")
    done, progress, foreseen = finished, None, False

    def see(now: RunProgress) -> None:
        nonlocal progress, foreseen
        if now is not progress and now.expected is not None:
            note = f"{now.label}: about {now.expected.total_s:.0f} s: {now.expected}"
            console.print(note, markup=False, highlight=False, soft_wrap=True)
            foreseen = False
        if now.forecast is not None and now.judged is not None and not foreseen:
            foreseen = True
            note = f"{now.label}: at this pace the {now.judged.n} turns end after {now.forecast.run_s:.0f} s"
            console.print(note, markup=False, highlight=False, soft_wrap=True)
        progress = now
        show(now)

    def ended(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        text = f"[{done}/{total}] {outcome_text(outcome, 0)}"
        if outcome.status == "ok" and progress is not None and progress.taken is not None:
            text += f": {progress.taken}"
        colour = "red" if outcome.status == "failed" else ""
        console.print(Text(text, colour), highlight=False, soft_wrap=True)

    if not console.is_terminal or finished == total:
        show = _lines(console)
        yield see, ended
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        show = _table(live)
        yield see, ended


def _table(live: Live) -> See:
    return lambda progress: live.update(picture(progress))


def _lines(console: Console) -> See:
    last = -LINE_S

    def see(progress: RunProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_S:
            last = time.monotonic()
            console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

    return see


def cells(progress: RunProgress) -> dict[str, str]:
    """Return the cells that are shown, by heading; a number that is not known is a dash."""
    run_s = "" if progress.expected is None else f" of {progress.expected.run_s:.0f}"
    ttfp = [progress.ttfp(percentile) for percentile in (50, 90)]
    return {
        "t": f"{max(0.0, progress.t_s):.0f}{run_s} s",
        "phase": progress.phase,
        **_load(progress),
        "turns": str(progress.total("turns")),
        f"{progress.first} P50": _number(ttfp[0], 1e3, " ms"),
        "P90": _number(ttfp[1], 1e3, " ms"),
        **({"continuity": _number(progress.continuity, 100, " %", 1)} if progress.first == "TTFP" else {}),
        "rejected": str(progress.total("shed")),
        "failed": str(progress.total("failed")),
        "send delay P99": _number(progress.send_delay_p99_ms, 1, " ms", 2),
    }


def _load(progress: RunProgress) -> dict[str, str]:
    """Return the users present and planned, or in an open loop the requests in flight and sent."""
    if progress.open_loop:
        sent = f"{progress.total('came')} of {progress.planned}"
        return {"in flight": str(progress.total("sessions")), "sent": sent}
    return {"users": f"{progress.total('sessions')}/{progress.planned}"}


def line(progress: RunProgress) -> str:
    """One line of text."""
    t, phase, *shown = cells(progress).items()
    if not progress.planned:  # before the first call
        return f"{progress.label}: {phase[1]}, for {t[1]} so far"
    columns = ", ".join(f"{heading} {value}" for heading, value in shown)
    return f"{progress.label}: {t[1]}, {phase[1]}: {columns}"


def picture(progress: RunProgress) -> Group:
    """One row under its headings."""
    shown = cells(progress)
    table = Table(box=None, pad_edge=False)
    for heading in shown:
        table.add_column(heading, justify="right", min_width=8)
    bad = {"rejected", "failed"}
    table.add_row(*(Text(v, "red" if h in bad and v != "0" else "") for h, v in shown.items()))
    return Group(Text(progress.label, "bold"), table)


def _number(value: float | None, factor: float, unit: str, digits: int = 0) -> str:
    return "–" if value is None else f"{value * factor:.{digits}f}{unit}"
