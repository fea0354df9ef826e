from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.audio.conftest import known
from workloads.audio.pauses import BREATH_CLIP_S, breaths
from workloads.audio.vad import segments_of
from workloads.audio.voice import FOLDER, pausing, sentences, spoken
from workloads.generators.content import pcm_for
from workloads.registry import make_trace
from workloads.trace import Trace, Turn

MOST_BYTES = 3_000_000
RATE = 16_000


def turns(trace: Trace) -> list[Turn]:
    return [turn for session in trace.sessions for turn in session.turns]


def sound(trace: Trace, turn: Turn) -> np.ndarray:
    return np.frombuffer(b"".join(pcm_for(trace, turn, RATE)), "<i2")


def test_the_files_are_those_of_the_index_and_are_small() -> None:
    files = sorted(FOLDER.glob("*.opus"))
    assert files == sorted(sentence.path for sentence in sentences())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
    for sentence in sentences():
        for rate in (8_000, 16_000, 24_000):  # a file with another sum is refused
            assert len(sentence.pcm(rate)) == round(sentence.seconds * rate)
        assert sentence.text and sentence.places_s == tuple(sorted(sentence.places_s))
        assert round(sentence.seconds * 100) == pytest.approx(sentence.seconds * 100)


def test_sentences_have_eight_speakers_and_many_lengths() -> None:
    seconds = [sentence.seconds for sentence in sentences()]
    assert len({sentence.speaker for sentence in sentences()}) == 8
    assert len({sentence.text for sentence in sentences()}) == len(seconds) > 100
    assert min(seconds) < 1 and np.median(seconds) == pytest.approx(2.6, abs=0.4) and max(seconds) > 5


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 60.0), st.sampled_from([8_000, 16_000, 24_000]))
def test_speech_of_any_length_ends_where_a_sentence_does(seconds: float, rate: int) -> None:
    pcm = spoken(seconds, rate)
    assert pcm.dtype == np.int16 and len(pcm) == round(seconds * rate)
    end = round(0.04 * rate)
    assert any(np.array_equal(pcm[-end:], sentence.pcm(rate)[-end:]) for sentence in sentences())


def test_pauses_lengthen_turns_by_silence_and_change_nothing_else() -> None:
    trace, whole = (make_trace("speech", {"pauses": share}, 0) for share in (1.0, 0.0))
    paused, plain = trace.columns(), whole.columns()
    assert np.isnan(plain["pause_s"]).all()
    assert np.allclose(paused["audio_s"] - plain["audio_s"], np.nan_to_num(paused["pause_s"]))
    for name in ("arrival_s", "reply_audio_s", "think_s", "barge_in_after_s"):
        assert np.array_equal(paused[name], plain[name], equal_nan=True)
    for turn, without in zip(turns(trace)[:20], turns(whole)[:20], strict=True):
        heard, said = sound(trace, turn), sound(whole, without)
        if turn.microphone.pause_s:
            at, length = (round(known(s) * RATE) for s in (turn.microphone.pause_after_s, turn.microphone.pause_s))
            assert not heard[at : at + length].any()
            heard = np.delete(heard, slice(at, at + length))
        end = round(known(without.audio_s) * RATE)
        assert np.array_equal(heard[:end], said[:end])


def test_the_share_of_turns_with_a_pause_is_chosen_and_nested() -> None:
    def paused(**params: Any) -> np.ndarray:
        return ~np.isnan(make_trace("speech", params, 0).columns()["pause_s"])

    assert paused(sessions=500).mean() == pytest.approx(0.3, abs=0.03)
    half, all_ = paused(pauses=0.5), paused(pauses=1.0)
    assert all_.mean() == pytest.approx(pausing(), abs=0.08)  # the share of sentences with a place for one
    assert (half <= all_).all()
    assert 0.3 < half.mean() < all_.mean()


@given(st.floats(*BREATH_CLIP_S), st.integers(0, 2**32))
def test_breaths_are_medium_pauses(median_s: float, seed: int) -> None:
    lengths_s = breaths(np.random.default_rng(seed), median_s, 200)
    assert BREATH_CLIP_S[0] <= lengths_s.min() and lengths_s.max() <= BREATH_CLIP_S[1]


def test_sentences_have_no_silence_that_a_detector_takes_for_a_pause() -> None:
    trace = make_trace("speech", {"pauses": 0.0, "sessions": 40}, 0)
    for turn in turns(trace):
        assert len(segments_of(sound(trace, turn)[: round(known(turn.audio_s) * RATE)], "energy")) == 1
