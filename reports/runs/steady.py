"""Notes on the steady window: the turns that it leaves out, and runs that are too short for one."""

from collections.abc import Iterable

from reports.runs.measured import Measured, Run
from reports.tables.columns import LEFT_OUT
from reports.tables.labels import counted

SHOWN = 3
"""[chosen] Points that a note names."""


def steady_notes(run: Run) -> list[str]:
    """Return the notes of a run of turns, as sentences; none where nothing was left out."""
    points = [point for point in run.points if point.value("started") and "steady_begin" in point.values]
    steady = [point for point in points if point.value("steady_begin") is not None]
    whole = [point for point in points if point.value("steady_begin") is None and point.count("started") > 1]
    slow = [
        point
        for point in points
        if point.value("completed_rps") is None and (point.value("completed") or point.value("barged_in"))
    ]
    notes = []
    if any(point.value(name) for point in steady for name in LEFT_OUT):
        before, after = (_range(point.value(name) or 0.0 for point in steady) for name in LEFT_OUT)
        turns = _range(point.value("started") or 0.0 for point in steady)
        notes.append(f"Left out of {turns} turns: {before} before the steady window, {after} after it.")
    if whole:
        notes.append(f"Too short for a steady window, so measured whole: {_names(whole, points)}.")
    if slow:
        notes.append(
            "No rate, as the window has fewer than 30 completions or is shorter than three requests: "
            f"{_names(slow, points)}."
        )
    return notes


def _range(values: Iterable[float]) -> str:
    known = list(values)
    low, high = min(known), max(known)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _names(some: list[Measured], points: list[Measured]) -> str:
    if len(some) == len(points):
        return "all points"
    names = [point.point.label for point in some[:SHOWN]]
    more = f" and {counted(len(some) - SHOWN, 'other')}" if len(some) > SHOWN else ""
    return f"{', '.join(names)}{more}"
