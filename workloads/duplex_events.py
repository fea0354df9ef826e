"""What an open microphone hears beside turns in one breath: hesitations, and sounds while somebody else has the floor.

The columns are younger than the first traces and most leave them empty; no event is "" here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from workloads.classes import Rule

DUPLEX_COLUMNS = ("pause_after_s", "pause_s", "event", "event_after_s", "event_s")
Event = Literal["interruption", "backchannel", "side_speech", "background_speech", "noise", "correction"]
EVENTS: tuple[Event, ...] = get_args(Event)
"""interruption       the user takes the floor: the server should fall silent, hear it out and answer it
backchannel        "mhm": the server should go on
side_speech        the user speaks to somebody else: the server should go on
background_speech  somebody else speaks, farther away: the server should go on
noise              no speech at all: the server should go on
correction         the user has ended the turn and takes it up again: the server should fall silent, or not begin, and
                   answer the whole
"""
TAKES_FLOOR = ("interruption", "correction")
"""Of the events those at which the server should give way; at all others it should not."""


def rules(columns: Mapping[str, Any]) -> list[Rule]:
    """What a trace must keep, for its own check."""
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
