"""Rules of hesitations and events in a trace.

The columns are younger than the first traces and most leave them empty; no event is "" here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workloads.columns.classes import Rule
from workloads.columns.duplex_events import EVENTS


def rules(columns: Mapping[str, Any]) -> list[Rule]:
    """Return the rules that a trace must keep, for its own check."""
    event, spoken = columns["event"], ~np.isnan(columns["audio_s"])
    paused, timed = ~np.isnan(columns["pause_s"]), ~np.isnan(columns["event_after_s"])
    after, length = columns["pause_after_s"], columns["pause_s"]
    silent = np.isnan(columns["reply_audio_s"]) & (event != "correction")
    return [
        ("pause_s", paused & ~spoken, "only a spoken turn has a pause"),
        ("pause_s", paused & ~(length > 0), "must be more than 0 s"),
        ("pause_after_s", np.isnan(after) == paused, "goes with pause_s"),
        ("pause_after_s", paused & ~(after > 0), "must be more than 0 s"),
        ("pause_s", paused & ~(after + length < columns["audio_s"]), "must end before the turn does"),
        ("event", ~np.isin(event, ("", *EVENTS)), f"must be one of {', '.join(EVENTS)}"),
        ("event", (event != "") & silent, "needs a spoken reply"),
        ("event_after_s", (event != "") != timed, "goes with event"),
        ("event_s", (event != "") == np.isnan(columns["event_s"]), "goes with event"),
        ("event_s", (event != "") & ~(columns["event_s"] > 0), "must be more than 0 s"),
    ]
