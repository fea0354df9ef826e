import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.signal import welch

from workloads.audio import degrade
from workloads.audio.degrade import Degradation
from workloads.audio.synth import SyntheticClip
from workloads.errors import UserError
from workloads.generators.content import pcm_for
from workloads.registry import make_trace
from workloads.trace import Trace

needs_librosa = pytest.mark.skipif(find_spec("librosa") is None, reason="needs the extra audio")
SPEECH = SyntheticClip(9).pcm(16_000)
ALL = {"reverb_s": 0.4, "snr_db": 15.0, "codec": "g711"}


def heard(pcm: np.ndarray = SPEECH, seed: int = 0, session: int = 0, turn: int = 0, rate: int = 16_000, **how):
    return Degradation(**how).applied(pcm, rate, seed, session, turn)


def power_db(sound: np.ndarray, low: float, high: float, rate: int = 16_000) -> float:
    hz, power = welch(sound.astype(float), rate, nperseg=1024)
    return float(10 * np.log10(power[(hz >= low) & (hz < high)].mean() + 1e-12))


def said(trace: Trace) -> list[bytes]:
    return [b"".join(pcm_for(trace, turn)) for session in trace.sessions for turn in session.turns]


@needs_librosa
@pytest.mark.parametrize(("rate", "seconds"), [(8_000, 0.1), (8_000, 3.0), (48_000, 0.1), (48_000, 3.0)])
def test_a_turn_keeps_its_length_and_silence_stays_nearly_silent(rate: int, seconds: float) -> None:
    pcm = SyntheticClip(9).pcm(rate)[: round(seconds * rate)]
    sound = heard(pcm, rate=rate, **ALL)
    assert (sound.dtype, sound.shape) == (np.int16, pcm.shape)
    assert np.abs(sound).max() > 300
    assert np.abs(heard(np.zeros_like(pcm), rate=rate, **ALL)).max() <= 8


QUIET = SPEECH // 4
"""Speech so quiet that no noise of a test clips it."""


def noise_of(snr_db: float) -> np.ndarray:
    """The noise that speech gets at this signal-to-noise ratio; 1 is full scale."""
    return (heard(QUIET, snr_db=snr_db) - QUIET.astype(float)) / 32768


@needs_librosa
@pytest.mark.parametrize("snr_db", [0.0, 10.0, 25.0])
def test_noise_has_the_given_ratio_to_the_level_of_speech(snr_db: float) -> None:
    noise_rms = np.sqrt(np.mean(noise_of(snr_db) ** 2))
    speech_rms = degrade.speech_level(QUIET / 32768)
    assert 20 * np.log10(speech_rms / noise_rms) == pytest.approx(snr_db, abs=0.3)


@needs_librosa
def test_noise_loses_three_decibels_with_each_octave() -> None:
    noise, octaves = noise_of(10.0), 4  # from 200 to 3,200 Hz
    fall_db = power_db(noise, 200, 400) - power_db(noise, 3200, 6400)
    assert fall_db == pytest.approx(3 * octaves, abs=2)


@needs_librosa
def test_a_pause_is_no_part_of_the_level_of_speech() -> None:
    speech = SPEECH / 32768
    with_pause = np.concatenate([speech, np.zeros(4 * len(speech))])
    assert degrade.speech_level(with_pause) == pytest.approx(degrade.speech_level(speech), rel=0.1)


@needs_librosa
def test_a_telephone_passes_its_band_and_no_more() -> None:
    bands = ((40, 150), (500, 3000), (4200, 7800))
    below, within, above = (power_db(heard(codec="g711"), *band) - power_db(SPEECH, *band) for band in bands)
    assert below < -15 and above < -15
    assert within == pytest.approx(0, abs=1)


@pytest.mark.parametrize("reverb_s", [0.2, 0.6, 1.5])
def test_sound_falls_by_60_db_in_the_time_of_the_room(reverb_s: float) -> None:
    response = degrade.room_response(reverb_s, 16_000, 0, 0)
    left = np.cumsum(response[1:][::-1] ** 2)[::-1]  # Schroeder's integral
    falls = 10 * np.log10(left / left[0])
    t = np.arange(len(falls)) / 16_000
    fitted = (falls > -25) & (falls < -5)
    slope = np.polyfit(t[fitted], falls[fitted], 1)[0]
    assert -60 / slope == pytest.approx(reverb_s, rel=0.15)
    assert (response[0], left[0]) == (1.0, pytest.approx(1.0))


@needs_librosa
def test_noise_is_drawn_for_each_turn_and_a_room_for_each_session() -> None:
    def of(**where: Any) -> bytes:
        return heard(**where, snr_db=10.0).tobytes()

    assert of() == of()
    assert len({of(), of(seed=1), of(session=1), of(turn=1)}) == 4
    rooms = [heard(reverb_s=0.5, session=session, turn=turn).tobytes() for session in (0, 1) for turn in (0, 1)]
    assert rooms[0] == rooms[1] and rooms[2] == rooms[3] and rooms[0] != rooms[2]


@needs_librosa
def test_a_trace_says_what_is_heard_and_keeps_its_turns() -> None:
    plain, degraded = (make_trace("speech", {"sessions": 3, **how}, 0) for how in ({}, ALL))
    assert plain.header.hash == degraded.header.hash
    assert not any(note.startswith("heard ") for note in plain.header.notes)
    assert "heard in a room of 0.4 s, over noise at 15 dB, through g711" in degraded.header.notes
    assert said(degraded) == said(degraded)
    assert [len(sound) for sound in said(degraded)] == [len(sound) for sound in said(plain)]
    assert not set(said(degraded)) & set(said(plain))


def test_without_librosa_the_trace_is_refused_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "librosa", None)
    with pytest.raises(UserError, match=r"^this needs the package librosa, which is not installed; run .*pip install"):
        make_trace("speech", {"snr_db": 10}, 0)
