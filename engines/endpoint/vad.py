"""Finds speech in a stream of audio as it comes: webrtcvad on 20 ms frames, and the edges of speech in them.

A turn begins with several frames of speech close together; `engines.turn_taking` decides which silence ends it.
"""

from typing import NamedTuple

import numpy as np

from workloads.optional import optional

FRAME_S = 0.02
"""[config] the longest two of webrtcvad's frames are 20 and 30 ms; clients send 20."""

START_FRAMES, OF_FRAMES = 6, 7
"""[measured] frames of speech among the newest that begin a turn: the fewest at which clicks of up to 30 ms, for which
webrtcvad keeps a few frames more, are none. Onsets of synthetic speech are found 0.12 s after they begin (P90 0.14)."""

GOES_ON = 2
"""[chosen] frames of speech in a row that keep a turn going: single false alarms in silence do not."""

SETTLING = 5
"""Frames of silence before any sound: webrtcvad's noise estimate takes any first sound for speech in 80 ms ([measured]
in `workloads.audio.vad`)."""

AGGRESSIVENESS = ((0.5, 3), (0.35, 2), (0.2, 1), (0.0, 0))
"""[chosen] OpenAI's threshold, 0 to 1, as webrtcvad's four steps; its default, 0.5, as the one with the fewest false
alarms."""

TAPS = 48
"""[chosen] taps of the filter from 24 kHz to webrtcvad's internal 8 kHz: 60 dB down from 4.5 kHz."""


class Edge(NamedTuple):
    """Speech begins or ends, `ago_s` seconds before the end of the frame that shows it."""

    speech: bool
    ago_s: float


class Vad:
    """The detector. `frame` takes the stream in pieces of exactly `frame_bytes`; `threshold` as OpenAI's, 0 to 1."""

    def __init__(self, rate: int, threshold: float) -> None:
        level = next(level for least, level in AGGRESSIVENESS if threshold >= least)
        self._detector = optional("webrtcvad", "audio").Vad(level)
        self._rate = rate if rate == 16_000 else 8_000
        self._lowpass = None if rate == 16_000 else Decimator(rate // self._rate)
        self.frame_bytes = 2 * round(rate * FRAME_S)
        self._in_turn = self._speaking = False
        self._recent: list[bool] = []
        for _ in range(SETTLING):
            self._is_speech(bytes(self.frame_bytes))

    def frame(self, pcm: bytes) -> Edge | None:
        """Take the next 20 ms, 16-bit mono; returns an edge if it shows one."""
        speech = self._is_speech(pcm)
        self._recent = [*self._recent[1 - OF_FRAMES :], speech]
        if not self._in_turn:
            if sum(self._recent) < START_FRAMES:
                return None
            self._in_turn = self._speaking = True
            return Edge(True, OF_FRAMES * FRAME_S)
        speaking = all(self._recent[-GOES_ON:])
        if speaking == self._speaking:
            return None
        self._speaking = speaking
        return Edge(speaking, (GOES_ON if speaking else 1) * FRAME_S)

    def turn_over(self) -> None:
        """End the turn: the next one has to begin anew."""
        self._in_turn, self._recent = False, []

    def _is_speech(self, pcm: bytes) -> bool:
        if self._lowpass is not None:
            pcm = self._lowpass(pcm)
        return self._detector.is_speech(pcm, self._rate)


class Decimator:
    """Takes every `factor`-th sample of a stream, behind a windowed-sinc low pass."""

    def __init__(self, factor: int) -> None:
        self._factor = factor
        at = np.arange(TAPS) - (TAPS - 1) / 2
        taps = np.sinc(0.9 * at / factor) * np.blackman(TAPS)
        self._taps = (taps / taps.sum()).astype(np.float32)
        self._before = np.zeros(TAPS - 1, np.float32)

    def __call__(self, pcm: bytes) -> bytes:
        samples = np.concatenate([self._before, np.frombuffer(pcm, "<i2").astype(np.float32)])
        self._before = samples[1 - TAPS :]
        # The filter only at the samples that stay: rows are windows that begin `factor` apart.
        windows = np.lib.stride_tricks.sliding_window_view(samples, TAPS)[:: self._factor]
        return np.clip(np.rint(windows @ self._taps), -32768, 32767).astype("<i2").tobytes()
