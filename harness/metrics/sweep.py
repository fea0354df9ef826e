"""From a sweep of offered loads to the useful RPS: the highest load whose listeners hear unbroken speech."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

USEFUL_CONTINUITY = 0.95
"""Continuity that a useful load must reach. LiveServe does not state its level; 95 % is ours."""
MIN_SEEDS = 3
"""Seeds that a load needs before it can qualify."""


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One measured run of a sweep."""

    offered_rps: float
    seed: int
    continuity: float | None
    """Share of continuous replies; None when the run failed or had none to judge."""


@dataclass(frozen=True, slots=True)
class UsefulRps:
    """The highest useful load in 1/s, or None; `reason` says in a sentence why it is that."""

    value: float | None
    reason: str


def useful_rps(points: Iterable[LoadPoint]) -> UsefulRps:
    """Highest offered load whose median continuity over at least 3 seeds is at least 95 %.

    A load with a seed of unknown continuity does not qualify: a crashed run must not raise the result. Of
    points with the same load and seed the last one counts.
    """
    loads: dict[float, dict[int, float | None]] = {}
    for point in points:
        loads.setdefault(point.offered_rps, {})[point.seed] = point.continuity
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


def _why_not(seeds: dict[int, float | None]) -> str:
    """Why a load does not qualify; empty when it does."""
    known = [continuity for continuity in seeds.values() if continuity is not None]
    if len(known) < len(seeds):
        return f"continuity unknown for {len(seeds) - len(known)} of {len(seeds)} seeds"
    if _too_few(seeds):
        return f"not judged, {len(known)} of {MIN_SEEDS} seeds"
    if median(known) < USEFUL_CONTINUITY:
        return f"median continuity {median(known):.1%}"
    return ""


def _too_few(seeds: dict[int, float | None]) -> bool:
    """Whether all is known of a load, but of too few seeds."""
    return len(seeds) < MIN_SEEDS and None not in seeds.values()


def _listed(failing: dict[float, str]) -> str:
    return "; ".join(f"{load:g} rps: {why}" for load, why in failing.items())
