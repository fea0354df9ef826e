"""Synthetic speech for streams without turns: vowels from formant filters, without words and not the voice of a person.

Detectors of voice activity hear it (Silero 60 of 60 clips), so it loads a server as speech does. It has neither words
nor the melody of a sentence, so a detector of turns cannot tell its ends from its pauses: Smart Turn v3.2 takes 43 of
60 ends for the end of a turn, and 37 of 54 pauses. Users who take turns speak with `workloads.audio.voice`.
Everything made with it says "synthetic speech".
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workloads.audio.library import held
from workloads.distributions.speech import utterances
from workloads.seeds import stream

NOTE = "synthetic speech: made in code, no recording was used"
CLIPS = 256
MEDIAN_S = 3.0  # as workload voice
SYLLABLE_S = (0.14, 0.28)  # choice: about five syllables a second, the pace of fluent English
PHRASE = 7  # choice: syllables between two breaths
BREATH_S = 0.3  # choice
PITCH_HZ = (95.0, 230.0)  # choice: adult voices
# Formants of seven vowels, Hz: means over men of Peterson and Barney 1952, as widely reprinted (not checked).
VOWELS = np.array(
    [
        (270, 2290, 3010),
        (530, 1840, 2480),
        (660, 1720, 2410),
        (730, 1090, 2440),
        (570, 840, 2410),
        (300, 870, 2240),
        (640, 1190, 2390),
    ],
    float,
)
BANDWIDTHS_HZ = (60, 90, 150)  # choice
LOUDNESS = 0.25  # peak of full scale


@dataclass(frozen=True, slots=True)
class SyntheticClip:
    """Synthetic speech number `index`; a `Clip`. The same index sounds the same on every machine."""

    index: int

    @property
    def name(self) -> str:
        return f"synthetic speech {self.index}"

    @property
    def sha256(self) -> str:
        """Returns the hash of its name: the sound itself may differ in the last bit between machines."""
        return hashlib.sha256(f"{self.name}, version 1".encode()).hexdigest()

    @property
    def seconds(self) -> float:
        return round(float(_plan(self.index)[-1, 1]), 2)

    def pcm(self, rate: int) -> np.ndarray:
        return held.get((self.sha256, rate), lambda: _speak(self.index, self.seconds, rate))


def synthetic_clips() -> list[SyntheticClip]:
    """The whole stock: 256 clips, 0.3 to 30 s each, median 3 s."""
    return [SyntheticClip(index) for index in range(CLIPS)]


@lru_cache(maxsize=CLIPS)
def _plan(index: int) -> np.ndarray:
    """Begin and end of each syllable in s, on whole hundredths, shape (syllables, 2)."""
    rng = stream(index, "synthetic speech: rhythm")
    left_s, at_s, plan = float(utterances(rng, MEDIAN_S, 1)[0]), 0.0, []
    while left_s > 0:
        length_s = rng.uniform(*SYLLABLE_S)
        plan.append((at_s, at_s + length_s))
        at_s += length_s + (BREATH_S if len(plan) % PHRASE == 0 else 0.0)
        left_s -= length_s
    return np.round(plan, 2)


def _speak(index: int, seconds: float, rate: int) -> np.ndarray:
    from scipy.signal import lfilter

    rng = stream(index, "synthetic speech: voice")
    out = np.zeros(round(seconds * rate))
    pitch_hz = rng.uniform(*PITCH_HZ)
    for begin_s, end_s in _plan(index):
        begin, end = round(begin_s * rate), round(end_s * rate)
        t = np.linspace(0, 1, end - begin, endpoint=False)
        contour = pitch_hz * (1.1 - 0.2 * begin_s / seconds) * (1 + 0.05 * np.sin(np.pi * t))
        pulses = np.diff(np.floor(np.cumsum(contour) / rate), prepend=0)
        sound = lfilter([1.0], [1.0, -0.95], pulses) + 0.02 * rng.standard_normal(len(t))
        for formant_hz, width_hz in zip(VOWELS[rng.integers(len(VOWELS))], BANDWIDTHS_HZ, strict=True):
            sound = _resonate(sound, formant_hz, width_hz, rate)
        consonant = 0.1 * rng.standard_normal(len(t)) * np.exp(-((t / 0.15) ** 2))
        sound = sound / (np.abs(sound).max() + 1e-9) + consonant
        out[begin:end] = sound * np.sin(np.pi * np.clip(t, 0.02, 0.98)) ** 0.5
    waveform = np.rint(out / np.abs(out).max() * LOUDNESS * 32767).astype(np.int16)
    waveform.flags.writeable = False
    return waveform


def _resonate(sound: np.ndarray, formant_hz: float, width_hz: float, rate: int) -> np.ndarray:
    """One formant: a filter with two poles (Klatt 1980)."""
    from scipy.signal import lfilter

    radius = np.exp(-np.pi * width_hz / rate)
    b, c = 2 * radius * np.cos(2 * np.pi * formant_hz / rate), -(radius**2)
    return np.asarray(lfilter([1 - b - c], [1.0, -b, -c], sound))
