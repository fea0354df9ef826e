"""The sentence on the goodput of several loads, and on the load at which it is highest."""

from __future__ import annotations

from collections.abc import Sequence

from reports.tables.labels import listed


def goodput_notes(loads: Sequence[tuple[str, str, float | None]]) -> list[str]:
    """Return the sentence; none for fewer than two loads with a goodput. `loads`: name, short name, and goodput
    in turns per second, by size."""
    known = [(name, short, value) for name, short, value in loads if value is not None]
    if len(known) < 2:
        return []
    each = listed([f"{value:.3g} at {short}" for _, short, value in known])
    knee = max(known, key=lambda load: load[2])
    beyond = "the largest load that was tried" if knee is known[-1] else "the knee"
    return [f"Goodput, turns a second that met every target: {each}. It is highest at {knee[0]}, {beyond}."]
