"""The sound of replies if the vocoder is modelled: a voice-like waveform of exactly the spoken length.

Synthetic speech (`workloads.audio.synth`): nobody's voice and no words, with the loudness and spectrum of speech.
"""

from functools import cache

import numpy as np

from engines.endpoint.settings import OUTPUT_RATE
from workloads.audio.synth import SyntheticClip

VOICES = 6
"""[chosen] speakers that sessions take turns in; each is made once, in 0.1 s."""

LOOP_S = 10.0
"""[chosen] length after which a voice begins again: longer than anybody remembers nonsense."""

MOST_S = 4.0
"""[chosen] audio of one message at most: 256 KB in base64, a quarter of clients' default limit."""


class Voice:
    """The voices of one server, made ahead, so that no reply waits for one."""

    def __init__(self) -> None:
        self._loops = [_loop(number) for number in range(VOICES)]

    def speak(self, speaker: int, at: int, samples: int) -> bytes:
        """Return `samples` samples (16-bit, 24 kHz) of `speaker`'s stream from sample `at` on."""
        loop = self._loops[speaker % VOICES]
        at %= len(loop)
        pieces = [loop[at : at + samples]]
        while (missing := samples - sum(map(len, pieces))) > 0:
            pieces.append(loop[:missing])
        return b"".join(piece.tobytes() for piece in pieces)


@cache
def _loop(number: int) -> np.ndarray:
    """Return at least `LOOP_S` seconds of one speaker, beginning and ending in silence; int16, shape (samples,)."""
    index, pieces, seconds = number, [], 0.0
    while seconds < LOOP_S:
        pieces.append(SyntheticClip(index).pcm(OUTPUT_RATE))
        seconds += len(pieces[-1]) / OUTPUT_RATE
        index += VOICES
    return np.concatenate(pieces).astype("<i2")


def pieces(samples: int) -> list[int]:
    """Return the lengths of the messages in which `samples` samples are sent."""
    most = round(MOST_S * OUTPUT_RATE)
    return [most] * (samples // most) + ([samples % most] if samples % most else [])
