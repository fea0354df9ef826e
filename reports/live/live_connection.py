"""Sentences on the way to the server, where that is more than TCP and the system's certificates, and on a limit of what
is in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from reports.runs.measured import Measured, Run

LATE_S = 0.05
"""A user who came later than this after the scheduled time had to wait for a place, s. [chosen]"""

_WORDS = {
    "proxy": "through the proxy {}, whose delay counts",
    "unix_socket": "over the Unix socket {}",
    "insecure": "with no check of the server's certificate (--insecure)",
    "ca": "with the certificate authorities in {}",
    "client_cert": "with the client's certificate in {}",
}
"""Parameter of a target -> what it means for its connections."""


def connection_notes(settings: Mapping[str, Any]) -> list[str]:
    """Return the sentence on the connections of a run with these `settings`; none for plain ones."""
    parts = [words.format(settings[name]) for name, words in _WORDS.items() if settings.get(name)]
    return [f"Connections: {', '.join(parts)}."] if parts else []


def limit_notes(run: Run) -> list[str]:
    """Return a sentence for each load of an open loop whose limit made users wait."""
    from reports.live.live_record import loads

    most = run.experiment.set.get("most")
    notes = []
    for load in loads(run) if most else ():
        waited, users, rate = _held(load.points)
        if waited:
            notes.append(
                f"At most {most} at once: {waited} of {users} users ({load.label(run)}) had to wait for a place, so "
                f"that {rate:.3g} came a second; their latencies count from when they came."
            )
    return notes


def _held(points: Sequence[Measured]) -> tuple[int, int, float]:
    """Return how many users waited, how many came, and how many a second."""
    waited, users, rates = 0, 0, []
    for point in points:
        starts = point.kinds("session_start")
        columns = point.record.trace().columns()
        first = columns["turn"] == 0
        due_s = dict(zip(columns["session"][first], columns["arrival_s"][first], strict=True))
        at_s = np.sort(starts["t"].to_numpy(float))
        scheduled = np.array([due_s[session] for session in starts["session"]], float)
        waited += int((starts["t"].to_numpy(float) - scheduled > LATE_S).sum())
        users += len(at_s)
        if len(at_s) > 1:
            rates.append((len(at_s) - 1) / (at_s[-1] - at_s[0]))
    return waited, users, float(np.mean(rates)) if rates else 0.0
