"""The sound of a turn with its hesitation, and of events outside turns: a function of the trace, to the sample.

Levels are those of the speech: its RMS, as `Phrases` have no silences. Other speakers are in the same room and at the
same telephone; the noise of `snr_db` is added to the turns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from workloads.audio.degrade import Degradation
from workloads.audio.library import Clip
from workloads.seeds import stream
from workloads.trace import Turn

RAMP_S = 0.005  # fade of cut or synthetic sounds, against clicks [chosen]
LEVEL_DB = {
    "backchannel": 0.0,
    "side_speech": "side_db",
    "background_speech": "background_db",
    "noise": "noise_db",
}
"""Level of each sound below the user's speech, in dB, or the parameter that sets it."""


class Spoken(Protocol):
    """Recorded or drawn speech: `workloads.audio.utterances.Utterance` or `workloads.audio.phrases.Phrases`."""

    @property
    def clip(self) -> Clip: ...

    @property
    def seconds(self) -> float: ...

    def pcm(self, rate: int) -> np.ndarray: ...


def hesitating(pcm: np.ndarray, turn: Turn, rate: int) -> np.ndarray:
    """`pcm`, int16 of shape (samples,), with the turn's pause in it, as silence."""
    if turn.microphone.pause_s is None or turn.microphone.pause_after_s is None:
        return pcm
    at = round(turn.microphone.pause_after_s * rate)
    return np.concatenate([pcm[:at], np.zeros(round(turn.microphone.pause_s * rate), np.int16), pcm[at:]])


def beside(
    turn: Turn, own: Spoken, known: Sequence[Spoken], params: Mapping[str, Any], seed: int, rate: int
) -> np.ndarray:
    """Return int16 samples of the turn's event that does not take the floor, shape (event_s * rate,). `own`: the clip
    of the turn; `known`: all clips. Another speaker says another clip, if there is one."""
    assert turn.microphone.event is not None and turn.microphone.event_s is not None, "the turn has an event"
    rng = stream(seed, f"event {turn.session} {turn.turn}")
    samples = round(turn.microphone.event_s * rate)
    if turn.microphone.event == "noise":
        sound = _rustle(rng, samples)
    else:
        others = [said for said in known if said.clip != own.clip] or list(known)
        sound = _speech(rng, others if turn.microphone.event == "background_speech" else known, samples, rate)
    sound *= _ramps(samples, rate)
    below = LEVEL_DB[turn.microphone.event]
    below_db = params[below] if isinstance(below, str) else below
    sound *= _rms(own.pcm(rate)) * 10 ** (-below_db / 20) / max(_rms(sound), 1e-9)
    pcm = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    heard = Degradation(None, params.get("reverb_s"), params.get("codec"))
    return heard.applied(pcm, rate, seed, turn.session, turn.turn)


def _speech(rng: np.random.Generator, known: Sequence[Spoken], samples: int, rate: int) -> np.ndarray:
    """Return the speech from a drawn place on, until it is long enough."""
    at, pieces, got = int(rng.integers(len(known))), [], 0
    while got < samples:
        pieces.append(known[at % len(known)].pcm(rate))
        got += len(pieces[-1])
        at += 1
    return np.concatenate(pieces)[:samples].astype(np.float64)


def _rustle(rng: np.random.Generator, samples: int) -> np.ndarray:
    """Pink noise."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), samples)


def _ramps(samples: int, rate: int) -> np.ndarray:
    """0 to 1 within the first 5 ms and back within the last, from the first sample to the last."""
    edge = np.minimum(np.arange(1, samples + 1), np.arange(samples, 0, -1)) / max(1.0, RAMP_S * rate)
    return np.minimum(edge, 1.0)


def _rms(sound: np.ndarray) -> float:
    return float(np.sqrt(np.mean(sound.astype(np.float64) ** 2)))
