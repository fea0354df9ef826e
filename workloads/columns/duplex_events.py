"""Sounds of an open microphone besides turns without pause: hesitations, and sounds while others have the floor."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from workloads.columns.classes import Rule

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
"""The events at which the server should give way. It should not give way at any other event."""


@dataclass(frozen=True, slots=True)
class Microphone:
    """Sounds of an open microphone during a turn and its reply. Durations in seconds.

    pause_after_s     the user hesitates after so much speech; None: speaks in one breath
    pause_s           for so long, which is part of the turn's `audio_s`
    event             another sound of the user's side (`EVENTS`); None: nothing
    event_after_s     it begins so long after the first audible sound of the reply (a correction: after the turn's end)
    event_s           and lasts so long
    """

    pause_after_s: float | None = None
    pause_s: float | None = None
    event: str | None = None
    event_after_s: float | None = None
    event_s: float | None = None


ONE_BREATH = Microphone()
"""A turn in one breath, without other sounds."""
DUPLEX_COLUMNS = tuple(field.name for field in fields(Microphone))


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
