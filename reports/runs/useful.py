"""Useful RPS: the highest measured load at which listeners hear unbroken speech."""

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from reports.runs.measured import Measured, Run, by_seed, over_seeds
from reports.runs.part import Section
from reports.tables.columns import MISSING
from reports.tables.labels import short

USEFUL_CONTINUITY = 0.95
"""Continuity that a useful load must reach. LiveServe does not state its level; 95 % is ours."""
MIN_SEEDS = 3
"""Seeds that a load needs before it can qualify."""


class UsefulRps(NamedTuple):
    """The highest useful load in 1/s, or None; `reason` explains it in a sentence."""

    value: float | None
    reason: str


def useful_rps(loads: Mapping[float, Mapping[int, float | None]]) -> UsefulRps:
    """Highest offered load, 1/s, whose median continuity over at least 3 seeds is at least 95 %.

    `loads`: load -> seed -> share of continuous replies; None when the run failed or had none to judge. A load with
    such a seed does not qualify: a crashed run must not raise the result.
    """
    if not loads:
        return UsefulRps(None, "no load was measured")
    failing = {load: why for load, seeds in sorted(loads.items()) if (why := _why_not(seeds))}
    useful = max((load for load in loads if load not in failing), default=None)
    if useful is None:
        short = {len(seeds) for seeds in loads.values() if _too_few(seeds)}
        if short and max(short) == max(map(len, loads.values())):
            ran = "one seed of each was" if short == {1} else f"at most {max(short)} seeds of each were"
            return UsefulRps(None, f"not judged: a load takes {MIN_SEEDS} seeds, and {ran} run")
        return UsefulRps(None, "no load qualifies: " + _listed(failing))
    below = {load: why for load, why in failing.items() if load < useful}
    reason = f"highest of {len(loads)} loads with a median continuity of at least {USEFUL_CONTINUITY:.0%}"
    if below:
        reason += f", although lower loads do not qualify: {_listed(below)}"
    return UsefulRps(useful, reason)


def _why_not(seeds: Mapping[int, float | None]) -> str:
    """Return the reason why a load does not qualify; empty if it does."""
    values = [continuity for continuity in seeds.values() if continuity is not None]
    if len(values) < len(seeds):
        return f"continuity unknown for {len(seeds) - len(values)} of {len(seeds)} seeds"
    if _too_few(seeds):
        return f"not judged, {len(values)} of {MIN_SEEDS} seeds"
    if median(values) < USEFUL_CONTINUITY:
        return f"median continuity {median(values):.1%}"
    return ""


def _too_few(seeds: Mapping[int, float | None]) -> bool:
    """Return whether a load is fully known but has too few seeds."""
    return len(seeds) < MIN_SEEDS and None not in seeds.values()


def _listed(failing: dict[float, str]) -> str:
    return "; ".join(f"{load:g} rps: {why}" for load, why in failing.items())


LOAD_AXES = {"rate": "sessions per second offered", "c": "requests per second that c callers complete"}
"""Axes of a load, in the order of preference: an open loop offers a rate, a closed one yields it."""


def useful_loads(run: Run) -> dict[str, Any] | None:
    """Return a row for each variant and each setting of the other axes; None if no load was varied or there is no
    speech."""
    swept = {name for cell in run.cells for name, _ in cell}
    axis = next((name for name in LOAD_AXES if len(run.values(name)) > 1 and name in swept), None)
    if axis is None or not run.spoken:
        return None
    others = list(dict.fromkeys(tuple((n, v) for n, v in cell if n != axis) for cell in run.cells))
    rows = []
    for other in others:
        for index, variant in enumerate(run.variants):
            points = run.at(variant, **dict(other))
            values = sorted({point.params[axis] for point in points})
            loads = {value: load for value in values if (load := _load(points, axis, value)) is not None}
            judged: dict[float, dict[int, float | None]] = {}
            for value, load in loads.items():
                here = [point for point in points if point.params[axis] == value]
                judged.setdefault(load, {}).update(by_seed(here, "continuity"))
            result = useful_rps(judged)
            text = MISSING if result.value is None else f"{result.value:.3f}"
            if result.value is not None and axis != "rate":
                text += f", with {max(value for value, load in loads.items() if load == result.value)} callers"
            cell = [short(value) for _, value in other]
            rows.append({"cell": cell, "variant": index, "value": text, "reason": result.reason})
    return {"load": LOAD_AXES[axis], "axes": [name for name, _ in others[0]], "rows": rows}


SECTION = Section("runs/useful.html.j2", useful_loads, "comparison")


def _load(points: list[Measured], axis: str, value: float) -> float | None:
    """Return the load of this value of the axis, 1/s; of callers the requests that they complete."""
    here = [point for point in points if point.params[axis] == value]
    load = value if axis == "rate" else over_seeds(here, "completed_rps").median
    return None if load is None else round(load, 6)
