"""The loudspeaker of an open call: replies in the order in which they come, and where their sound can be heard.

It starts at a reply's first packet and pauses when it runs dry, as `harness.request_tables.playback` does. The energy
of the samples decides what is audible; without samples, as in virtual time, a whole packet is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import numpy as np

FRAME_S = 0.01
"""Window of the energy, s. [chosen]"""
SILENCE_DBFS = -50.0
"""A frame below this against full scale is silence. [chosen] Between recorded speech (-30 to -20) and the floor of
a recording (-70 to -60)."""
JOINED_S = 0.2
"""Sounds of one reply with less silence between them are one stretch: words have gaps. [chosen]"""


@dataclass(slots=True)
class Stretch:
    """Sound of `reply` without a break, s on the loop's clock."""

    reply: int
    begin_s: float
    end_s: float


class Tape(Protocol):
    """Keeps the played sound."""

    def play(self, reply: int, begin_s: float, audio_s: float, pcm: bytes) -> None: ...

    def stop(self, reply: int, at_s: float) -> None: ...


class Player:
    """Plays replies. `end_s`: when everything received so far is played; -inf before the first packet. `tape`: gets the
    played samples too, where there are any."""

    def __init__(self) -> None:
        self.end_s = -inf
        self.tape: Tape | None = None
        self._received_s: dict[int, float] = {}
        self._reply_end_s: dict[int, float] = {}
        self._sounds: list[Stretch] = []
        self._heard: set[int] = set()
        self._open_s = -inf
        """Time before which the first stretch cannot be over."""

    def arrive(self, reply: int, at_s: float, audio_s: float, pcm: bytes | None = None) -> float | None:
        """Take a packet of `audio_s` seconds, read at `at_s`; `pcm`: its samples, 16 bits each. Return when the reply
        becomes audible, if this packet determines it."""
        begin_s = max(at_s, self.end_s)
        self.end_s = self._reply_end_s[reply] = begin_s + audio_s
        self._received_s[reply] = self._received_s.get(reply, 0.0) + audio_s
        if self.tape is not None and pcm:
            self.tape.play(reply, begin_s, audio_s, pcm)
        first_s = None
        for begin, end in audible(audio_s, pcm):
            if reply not in self._heard:
                self._heard.add(reply)
                first_s = begin_s + begin
            self._sounds.append(Stretch(reply, begin_s + begin, begin_s + end))
        return first_s

    def stop(self, reply: int, at_s: float) -> None:
        """Drop the part of `reply` that has not been played by `at_s` (s)."""
        left_s = self._reply_end_s.get(reply, -inf) - at_s
        if left_s <= 0:
            return
        if self.tape is not None:
            self.tape.stop(reply, at_s)
        if self.end_s == self._reply_end_s[reply]:
            self.end_s = at_s
        self._reply_end_s[reply] = at_s
        self._received_s[reply] = max(0.0, self._received_s[reply] - left_s)
        self._open_s = -inf
        for sound in self._sounds:
            if sound.reply == reply:
                sound.end_s = min(sound.end_s, at_s)
        self._sounds = [sound for sound in self._sounds if sound.begin_s < sound.end_s]

    def played_s(self, reply: int, at_s: float) -> float:
        """Return the seconds of `reply` played by `at_s`."""
        if reply not in self._received_s:
            return 0.0
        return max(0.0, self._received_s[reply] - max(0.0, self._reply_end_s[reply] - at_s))

    def reply_end_s(self, reply: int) -> float:
        """Return when everything received of `reply` is played."""
        return self._reply_end_s.get(reply, -inf)

    def ended(self, by_s: float) -> Iterator[Stretch]:
        """Yield the stretches that nothing can prolong after `by_s`, each once."""
        while self._sounds and by_s >= self._open_s:
            whole, count = replace(self._sounds[0]), 1
            for sound in self._sounds[1:]:
                if sound.reply != whole.reply or sound.begin_s - whole.end_s >= JOINED_S:
                    break
                whole.end_s, count = sound.end_s, count + 1
            if whole.end_s + JOINED_S > by_s:
                self._open_s = whole.end_s + JOINED_S
                return
            del self._sounds[:count]
            yield whole


def audible(audio_s: float, pcm: bytes | None) -> list[tuple[float, float]]:
    """Yield begin and end of each run of frames with sound in a packet, s from its begin."""
    if pcm is None:
        return [(0.0, audio_s)] if audio_s > 0 else []
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    if not samples.size:
        return []
    size = max(1, round(samples.size / audio_s * FRAME_S))
    starts = np.arange(0, samples.size, size)
    lengths = np.diff(starts, append=samples.size)
    energy = np.add.reduceat(samples * samples, starts) / lengths
    loud = np.concatenate([[False], energy > 10 ** (SILENCE_DBFS / 10), [False]])
    edges = np.flatnonzero(loud[1:] != loud[:-1]).reshape(-1, 2)
    second = audio_s / samples.size
    places = np.append(starts, samples.size)
    return [(float(places[begin]) * second, float(places[end]) * second) for begin, end in edges]
