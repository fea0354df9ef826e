"""Silences within a turn: breaths, and hesitations that people take for the end of it."""

import numpy as np

from workloads.audio.turntaking import Published

SOURCE = "Campione and Véronis 2002, Speech Prosody: silent pauses in five languages"
# Its abstract: medium pauses have 200 to 1000 ms; longer ones are a kind of their own, in free speech only.
MEDIUM_PAUSE_S = Published(0.426, f"median of the medium ones: {SOURCE}", False)
LONG_PAUSE_S = Published(1.585, f"median of the long ones: {SOURCE}", False)
LONG_SHARE = Published(0.3, "choice: of hesitations, those of the long kind", False)
PAUSE_SIGMA = Published(0.4, "choice: of each kind, lognormal as all studies of pauses find", False)
HESITATION_CLIP_S = (0.3, 2.0)  # choice: below, it is a stop between words; above, people expect an answer
# Silences of 0.2 to 1 s inside 36 recorded utterances (LibriVox, LibriSpeech, a speech, telephone prompts; 193 s),
# between the stretches in which both detectors of `vad` hear speech: 26, so one in 7.4 s, and their log-spread is 0.39.
BREATH_S = Published(0.27, "median of 26 silences in 36 recorded utterances", True)
BREATHS = Published(0.3, "turns of 2.7 s with a silence, at one in 7.4 s of the same recordings", True)
BREATH_CLIP_S = (0.2, 1.0)


def hesitations(rng: np.random.Generator, long: np.ndarray) -> np.ndarray:
    """Silences in s, on whole hundredths: a mixture of medium and long ones, cut to 0.3 to 2 s.

    `long`: uniform draws, which say of each which of the two it is.
    """
    median_s = np.where(long < LONG_SHARE.value, LONG_PAUSE_S.value, MEDIUM_PAUSE_S.value)
    return _lengths(rng, median_s, HESITATION_CLIP_S)


def breaths(rng: np.random.Generator, median_s: float, n: int) -> np.ndarray:
    """n silences in s, on whole hundredths, cut to 0.2 to 1 s."""
    return _lengths(rng, np.full(n, median_s), BREATH_CLIP_S)


def _lengths(rng: np.random.Generator, median_s: np.ndarray, clip_s: tuple[float, float]) -> np.ndarray:
    from scipy.special import ndtr, ndtri

    low, high = (ndtr(np.log(bound_s / median_s) / PAUSE_SIGMA.value) for bound_s in clip_s)
    quantile = low + (high - low) * rng.random(len(median_s))
    return np.round(median_s * np.exp(PAUSE_SIGMA.value * ndtri(quantile)), 2)


def placed(
    happens: np.ndarray, where: np.ndarray, lengths_s: np.ndarray, places_s: list[list[float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each turn after how much speech it pauses and for how long, in s; NaN for a turn said in one breath.

    places_s  of each turn that pauses, where it may
    where     which of them, as a uniform draw
    """
    after_s, pause_s = np.full((2, len(happens)), np.nan)
    for row in np.flatnonzero(happens).tolist():
        if places_s[row]:
            after_s[row] = places_s[row][int(where[row] * len(places_s[row]))]
            pause_s[row] = lengths_s[row]
    return after_s, pause_s
