"""Sounds of an open microphone besides turns in one breath: hesitations, and sounds while others have the floor."""

from typing import Literal, get_args

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
"""The events at which the server should give way. It should not give way at any other event."""
