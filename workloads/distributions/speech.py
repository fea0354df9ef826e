"""Speech in seconds: how fast people and models talk, how long users speak and pause, when they interrupt."""

from collections.abc import Callable

import numpy as np

AUDIO_TOKENS_PER_S = 13  # Qwen3-Omni's audio encoder: 100 mel frames (vLLM, qwen3_omni_moe_thinker.py)
SPEECH_S_PER_TOKEN = 0.28  # about 3.6 text tokens per spoken second; vLLM-Omni issue 602 logs 0.29
SPEECH_RATE_SIGMA = 0.15  # choice: sessions differ by +-15 %
UTTERANCE_SIGMA = 0.6  # choice: P99 of a 3 s median is 12 s
UTTERANCE_CLIP_S = (0.3, 30.0)  # choice: one word; the longest LibriSpeech utterances are about 30 s
THINK_SIGMA = 0.8  # choice, as gaps between human speakers: lognormal, strongly skewed
THINK_MAX_S = 30.0  # choice: a longer silence is the end of a call
NETWORK_CV = 0.6  # choice: one-way delays of 5 +- 3 ms

Durations = Callable[[np.random.Generator, int], np.ndarray]


def audio_tokens(audio_s: np.ndarray) -> np.ndarray:
    """Nominal input tokens of speech of the given lengths: ceil(13 s^-1 * audio_s)."""
    return np.ceil(audio_s * AUDIO_TOKENS_PER_S).astype(np.int64)


def speech_rate(
    rng: np.random.Generator, n: int, median_s: float | None = None, sigma: float | None = None
) -> np.ndarray:
    """Seconds of speech per text token of n speakers: lognormal, unless said otherwise with a median of 0.28 s and 15 %
    spread."""
    median_s = SPEECH_S_PER_TOKEN if median_s is None else median_s
    sigma = SPEECH_RATE_SIGMA if sigma is None else sigma
    return median_s * np.exp(sigma * rng.standard_normal(n))


def utterances(rng: np.random.Generator, median_s: float, n: int) -> np.ndarray:
    """Lengths in s of n utterances of users, to the microsecond as traces keep them."""
    return np.round(np.clip(median_s * np.exp(UTTERANCE_SIGMA * rng.standard_normal(n)), *UTTERANCE_CLIP_S), 6)


def think_times(rng: np.random.Generator, median_s: float, n: int) -> np.ndarray:
    """Pauses in s between the end of a reply and the user's next words, at most 30 s."""
    return np.minimum(median_s * np.exp(THINK_SIGMA * rng.standard_normal(n)), THINK_MAX_S)


def network_delays(rng: np.random.Generator, mean_ms: float, n: int) -> np.ndarray:
    """One-way delays in s of n sessions: lognormal with mean `mean_ms`, CV 0.6."""
    return lognormal(rng, mean_ms / 1000, NETWORK_CV, n)


def lognormal(rng: np.random.Generator, mean: float, cv: float, n: int) -> np.ndarray:
    """n lognormal values of this mean and coefficient of variation."""
    variance = np.log1p(cv**2)
    return mean * np.exp(np.sqrt(variance) * rng.standard_normal(n) - variance / 2)


def barge_ins(rng: np.random.Generator, p: float, n: int, durations: Durations) -> np.ndarray:
    """Return the times of interruptions, in s after the first audio of the reply, shape (n,); NaN: none.

    For any p, each turn draws u ~ U(0, 1) and a cut X from `durations`, the distribution of the workload's reply
    lengths; the turn barges in iff u < p. So traces of different p share everything else, and users who interrupt at
    a small p also interrupt at a larger one, at the same point (common random numbers). X is independent of the
    turn's own reply: a cut beyond its end is a barge-in that comes too late (LiveServe, evaluation set-up).
    """
    u = rng.random(n)
    cuts = durations(rng, n)
    return np.where(u < p, cuts, np.nan)
