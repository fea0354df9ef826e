"""The outcomes of points as text."""

from rich.console import Console

from harness.experiments.run_order import Outcome
from reports.tables.labels import counted
from workloads.errors import printable


def announce(console: Console, finished: int, total: int, how: str) -> None:
    """Print how many points are finished, and how many will be measured."""
    if finished:
        console.print(f"{finished} of {total} points are finished already", highlight=False)
    if finished < total:
        console.print(f"measuring {counted(total - finished, 'point')}, {how}", highlight=False)


def outcome_text(outcome: Outcome, digits: int) -> str:
    """`liveserve c=8 seed=0: ok in 2.3 s`, or why it failed."""
    how = f"ok in {outcome.wall_s:.{digits}f} s"
    if outcome.status == "failed":
        how = f"failed ({printable(outcome.reason)})"
    return f"{outcome.point.label}: {how}"
