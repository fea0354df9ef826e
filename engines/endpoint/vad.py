"""Where a stream of audio has speech in it, while it comes: webrtcvad on 20 ms frames, and what makes a turn of them.

A turn begins with several frames of speech close together and ends when there was none for `silence_duration_ms`.
"""

from typing import Literal

import numpy as np

from engines.endpoint.settings import ServerVad
from workloads.optional import optional

FRAME_S = 0.02
"""[config] the longest two of webrtcvad's frames are 20 and 30 ms; clients send 20."""

START_FRAMES, OF_FRAMES = 6, 7
"""[measured] frames of speech among the newest that begin a turn: the fewest at which clicks of up to 30 ms, for which
webrtcvad keeps a few frames more, are none. Onsets of synthetic speech are found 0.12 s after they begin (P90 0.14)."""

GOES_ON = 2
"""[chosen] frames of speech in a row that keep a turn going: single false alarms in silence do not."""

SETTLING = 5
"""webrtcvad's noise estimate takes any first sound for speech in 80 ms, so it is given silence before: [measured] in
`workloads.audio.vad`."""

AGGRESSIVENESS = ((0.5, 3), (0.35, 2), (0.2, 1), (0.0, 0))
"""[chosen] OpenAI's threshold, 0 to 1, as webrtcvad's four steps; its default, 0.5, as the one with the fewest false
alarms."""

TAPS = 48
"""[chosen] of the filter before 24 kHz become the 8 kHz at which webrtcvad works inside: 60 dB down from 4.5 kHz."""

Change = Literal["started", "stopped"]


class Vad:
    """`frame` takes the stream in pieces of exactly `frame_bytes` and says when a turn begins or ends."""

    def __init__(self, rate: int, settings: ServerVad) -> None:
        level = next(level for least, level in AGGRESSIVENESS if settings.threshold >= least)
        self._detector = optional("webrtcvad", "audio").Vad(level)
        self._rate = rate if rate == 16_000 else 8_000
        self._lowpass = None if rate == 16_000 else Decimator(rate // self._rate)
        self.frame_bytes = 2 * round(rate * FRAME_S)
        self._silence_frames = max(1, round(settings.silence_duration_ms / 1000 / FRAME_S))
        self._recent: list[bool] = []
        self._quiet = 0
        self.speaking = False
        for _ in range(SETTLING):
            self._is_speech(bytes(self.frame_bytes))

    def frame(self, pcm: bytes) -> Change | None:
        """The next 20 ms, 16-bit mono."""
        speech = self._is_speech(pcm)
        self._recent = [*self._recent[1 - OF_FRAMES :], speech]
        if not self.speaking:
            if sum(self._recent) < START_FRAMES:
                return None
            self.speaking, self._quiet = True, 0
            return "started"
        self._quiet = 0 if all(self._recent[-GOES_ON:]) else self._quiet + 1
        if self._quiet < self._silence_frames:
            return None
        self.speaking, self._recent = False, []
        return "stopped"

    def _is_speech(self, pcm: bytes) -> bool:
        if self._lowpass is not None:
            pcm = self._lowpass(pcm)
        return self._detector.is_speech(pcm, self._rate)


class Decimator:
    """Every `factor`-th sample of a stream, behind a windowed-sinc low pass."""

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
