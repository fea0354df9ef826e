"""Speech as it reaches a server from the world: out of a room, over noise, through a telephone. Off unless asked for.

The order is the world's: first the room, then the noise that the microphone hears with it, then the codec of the line.
A session has one room and its noise differs from turn to turn, all drawn from the seed; how long a turn is does not
change, so its trace has the same hash with and without. Needs librosa, of the extra `audio`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from workloads.optional import optional
from workloads.seeds import stream

Codec = Literal["g711"]
LINE_RATE = 8_000  # G.711: samples/s, and mu-law in 8 bits
LINE_BAND_HZ = (300.0, 3_400.0)  # ITU-T G.712: what a telephone line passes
DIRECT_DB = 0.0  # choice, of the direct sound over the room's: at a metre or two from the speaker
FIRST_REFLECTION_S = 0.0025  # choice: from a table below, 0.9 m further
PAUSE_DB = 40.0  # sound this far below the loudest is a pause, not part of the level of speech [chosen]


@dataclass(frozen=True)
class Degradation:
    """Changes to the sound of the turns; None: no change of that kind.

    snr_db    noise, in dB below the speech where it is spoken
    reverb_s  a room: time in which sound falls by 60 dB, s
    codec     of the line
    """

    snr_db: float | None = None
    reverb_s: float | None = None
    codec: Codec | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Degradation:
        """Return the changes that the parameters of a trace state; none, where it has none of them."""
        return cls(params.get("snr_db"), params.get("reverb_s"), params.get("codec"))

    def __str__(self) -> str:
        parts = [
            f"in a room of {self.reverb_s:g} s" if self.reverb_s is not None else "",
            f"over noise at {self.snr_db:g} dB" if self.snr_db is not None else "",
            f"through {self.codec}" if self.codec is not None else "",
        ]
        return ", ".join(filter(None, parts))

    def __bool__(self) -> bool:
        return self != Degradation()

    def check(self) -> None:
        """UserError when a package is missing."""
        if self:
            optional("librosa", "audio")

    def applied(self, pcm: np.ndarray, rate: int, seed: int, session: int, turn: int) -> np.ndarray:
        """The sound of a turn, int16 of shape (samples,), as it arrives: of the same shape."""
        if not self:
            return pcm
        sound = pcm.astype(np.float64) / 32768
        if self.reverb_s is not None:
            sound = _in_room(sound, room_response(self.reverb_s, rate, seed, session))
        if self.snr_db is not None:
            sound = sound + _noise(sound, self.snr_db, stream(seed, f"noise {session} {turn}"))
        if self.codec is not None:
            sound = _through_telephone(sound, rate)
        return np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16)


@lru_cache(maxsize=64)
def room_response(reverb_s: float, rate: int, seed: int, session: int) -> np.ndarray:
    """An impulse response: the direct sound, then noise that decays (Polack's model of a diffuse field)."""
    rng = stream(seed, f"room {session}")
    t = np.arange(round(reverb_s * rate)) / rate
    tail = rng.standard_normal(len(t)) * 10 ** (-3 * t / reverb_s) * (t >= FIRST_REFLECTION_S)
    tail *= 10 ** (-DIRECT_DB / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return tail


def _in_room(sound: np.ndarray, response: np.ndarray) -> np.ndarray:
    """`sound` in that room at the level that it had, as a microphone's gain control has it."""
    from scipy.signal import fftconvolve

    reverberant = fftconvolve(sound, response)[: len(sound)]
    return reverberant * (speech_level(sound) / max(speech_level(reverberant), 1e-9))


def _noise(sound: np.ndarray, snr_db: float, rng: np.random.Generator) -> np.ndarray:
    """Pink noise, 3 dB less with each octave, as most places have; shape of `sound`."""
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
    noise = np.fft.irfft(spectrum, len(sound))
    return noise * (speech_level(sound) * 10 ** (-snr_db / 20) / max(np.sqrt(np.mean(noise**2)), 1e-9))


def speech_level(sound: np.ndarray) -> float:
    """RMS of `sound` without its pauses."""
    spoken = optional("librosa", "audio").effects.split(sound, top_db=PAUSE_DB)
    energy = sum(float(np.sum(sound[begin:end] ** 2)) for begin, end in spoken)
    return float(np.sqrt(energy / max(sum(int(end - begin) for begin, end in spoken), 1)))


def _through_telephone(sound: np.ndarray, rate: int) -> np.ndarray:
    from scipy.signal import butter, sosfilt

    librosa, soxr = optional("librosa", "audio"), optional("soxr", "audio")
    band = butter(4, LINE_BAND_HZ, "bandpass", fs=LINE_RATE, output="sos")
    line = np.clip(sosfilt(band, soxr.resample(sound, rate, LINE_RATE)), -1, 1)
    line = librosa.mu_expand(librosa.mu_compress(line, mu=255), mu=255)
    decoded = soxr.resample(line, LINE_RATE, rate)[: len(sound)]
    return np.pad(decoded, (0, len(sound) - len(decoded)))
