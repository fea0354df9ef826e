"""Turns and events from long recordings, each named by a line of a trace's header.

A trace made of annotated calls has one recording a session, on whose own clock its turns and events lie.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from workloads.audio import library
from workloads.audio.library import Recording
from workloads.errors import UserError

DIGITS = 16  # of the sha256 in a note
_NOTE = re.compile(
    rf"(turn|event) (\d+)\.(\d+): (.+?)(?: channel (\d+))? sha256 ([0-9a-f]{{{DIGITS}}}) (\d+\.\d\d\d)-(\d+\.\d\d\d) s"
)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Seconds `begin_s` to `end_s` of a recording, on whole milliseconds."""

    recording: Recording
    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return round(self.end_s - self.begin_s, 3)

    def pcm(self, rate: int) -> np.ndarray:
        """int16 at `rate` samples/s, shape (seconds * rate,)."""
        begin, samples = round(self.begin_s * rate), round(self.seconds * rate)
        sound = self.recording.pcm(rate)[begin : begin + samples]
        return np.pad(
            sound, (0, samples - len(sound))
        )  # a recording's length is no whole number of milliseconds

    def note(self, what: str, session: int, turn: int) -> str:
        """One line that finds the sound of a turn, or of its event, again and proves that it is the same."""
        one = self.recording
        channel = "" if one.channel is None else f" channel {one.channel + 1}"
        digits = one.sha256[:DIGITS]
        return f"{what} {session}.{turn}: {one.name}{channel} sha256 {digits} {self.begin_s:.3f}-{self.end_s:.3f} s"


def named(notes: Sequence[str]) -> set[str]:
    """The recordings that a header's notes take stretches of."""
    return {match[4] for match in map(_NOTE.fullmatch, notes) if match}


def excerpt(notes: tuple[str, ...], folder: Path, what: str, session: int, turn: int) -> Excerpt:
    """Return the sound of a turn ("turn") or of its event ("event"); UserError when it is gone, or another than it
    was."""
    found = _found(notes).get((what, session, turn))
    if found is None:
        raise UserError(
            f"session {session} turn {turn}: the trace names no sound of this {what}; make it again."
        )
    name, channel, digits, begin_s, end_s = found
    recording = _opened(folder, name, channel)
    if not recording.sha256.startswith(digits):
        raise UserError(f"{name} is not the sound that the trace was made with; make the trace again.")
    return Excerpt(recording, begin_s, end_s)


@lru_cache(maxsize=8)
def _found(notes: tuple[str, ...]) -> dict[tuple[str, int, int], tuple[str, int | None, str, float, float]]:
    matches = [match.groups() for match in map(_NOTE.fullmatch, notes) if match]
    return {
        (what, int(session), int(turn)): (
            name,
            int(channel) - 1 if channel else None,
            digits,
            float(begin),
            float(end),
        )
        for what, session, turn, name, channel, digits, begin, end in matches
    }


@lru_cache(maxsize=4096)
def _opened(folder: Path, name: str, channel: int | None) -> Recording:
    return library.open_recording(folder, name, channel)
