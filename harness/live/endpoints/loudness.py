"""Loudness of a reply: a server may send a whole reply that nobody can hear."""

import math

import numpy as np

from harness.live.endpoints.dialects.audio_format import AudioFormat

SILENT = "silent_reply"
"""Kind of the event that logs a silent reply; its value is the level in dBFS."""
SILENT_DBFS = -60.0
"""A reply whose RMS is below this against full scale is silent. [chosen] The noise floor of a recorded room."""
LEAST_DBFS = -120.0
"""Level of zeros, whose logarithm is infinite. [chosen] Below one bit of 16."""
_PAUSE_S = 1.0
"""Longest pause, s, with which speech may begin: a reply that is cut within it is not silent. [chosen]"""
_SURE_S = 60.0
"""Length of a reply, s, that energy must suffice for before packets are not looked at any more. [chosen]"""
_SILENT = 10 ** (SILENT_DBFS / 10)
_FULL_SCALE = 32768.0**2


class Loudness:
    """The energy of one reply's sound. `audible`: it is certain that the reply is not silent, and packets need not be
    added any more: with this energy `_SURE_S` of sound would be louder than silence, and speech has it in a packet."""

    __slots__ = ("_energy_s", "_format", "_rest", "_seconds", "audible")

    def __init__(self) -> None:
        self.audible = False
        self._energy_s = self._seconds = 0.0
        self._rest = b""
        self._format: AudioFormat | None = None

    def add(self, data: bytes, format: AudioFormat) -> None:
        """Add a packet, which may end within a sample."""
        if format is not self._format and format != self._format:
            self._format, self._rest = format, b""
        data = self._rest + data if self._rest else data
        whole = len(data) - len(data) % format.frame
        self._rest = data[whole:]
        if whole:
            samples = format.samples(data[:whole]).astype(np.float32)
            seconds = whole / format.bytes_per_s
            self._energy_s += seconds * float(np.dot(samples, samples)) / samples.size / _FULL_SCALE
            self._seconds += seconds
            self.audible = self._energy_s > _SILENT * _SURE_S

    def silent_dbfs(self, whole: bool = True) -> float | None:
        """Return the reply's RMS against full scale, dBFS, if it is silent; None: it is not, or has no sound. `whole`:
        it has not been cut."""
        if self.audible or not self._seconds or not (whole or self._seconds > _PAUSE_S):
            return None
        power = self._energy_s / self._seconds
        level = 10 * math.log10(power) if power else -math.inf
        return max(level, LEAST_DBFS) if level < SILENT_DBFS else None
