"""The voice of callers without recordings: its files, its pauses, and which speech a trace has."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.audio.conftest import known
from workloads.audio.pauses import BREATH_CLIP_S, breaths
from workloads.audio.vad import segments, segments_of
from workloads.audio.voice import FOLDER, NAME, pausing, sentences, spoken
from workloads.generators.content import pcm_for, speech_source
from workloads.registry import make_trace
from workloads.trace import Trace, Turn

MOST_BYTES = 3_000_000
RATE = 16_000


def turns(trace: Trace) -> list[Turn]:
    return [turn for session in trace.sessions for turn in session.turns]


def test_the_files_are_those_of_the_index_and_are_small() -> None:
    files = sorted(FOLDER.glob("*.opus"))
    assert files == sorted(sentence.path for sentence in sentences())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
    for sentence in sentences():
        for rate in (8_000, 16_000, 24_000):  # a file with another sum is refused
            assert len(sentence.pcm(rate)) == round(sentence.seconds * rate)
        assert sentence.text and sentence.places_s == tuple(sorted(sentence.places_s))
        assert round(sentence.seconds * 100) == pytest.approx(sentence.seconds * 100)


def test_sentences_are_speech_from_begin_to_end_at_one_level() -> None:
    after_s = []
    for sentence in sentences():
        pcm = sentence.pcm(RATE)
        (found,) = segments(sentence, "energy")
        assert found.start_s <= 0.09, sentence.name
        after_s.append(sentence.seconds - found.end_s)
        heard_s = sum(part.end_s - part.start_s for part in segments(sentence))
        assert heard_s > 0.6 * sentence.seconds, sentence.name
        loud = np.percentile(np.sqrt(np.mean((pcm[: len(pcm) // 160 * 160] / 32768.0).reshape(-1, 160) ** 2, 1)), 95)
        assert -20 < 20 * np.log10(loud) < -10, sentence.name
        assert np.abs(pcm).max() < 32_767
    assert np.median(after_s) <= 0.03 and np.percentile(after_s, 90) <= 0.06 and max(after_s) < 0.2  # a soft "s"


def test_sentences_have_eight_speakers_and_many_lengths() -> None:
    seconds = [sentence.seconds for sentence in sentences()]
    assert len({sentence.speaker for sentence in sentences()}) == 8
    assert len({sentence.text for sentence in sentences()}) == len(seconds) > 100
    assert min(seconds) < 1 and np.median(seconds) == pytest.approx(2.6, abs=0.4) and max(seconds) > 5
    assert np.mean([bool(sentence.places_s) for sentence in sentences()]) > 0.6


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 60.0), st.sampled_from([8_000, 16_000, 24_000]))
def test_speech_of_any_length_ends_where_a_sentence_does(seconds: float, rate: int) -> None:
    pcm = spoken(seconds, rate)
    assert pcm.dtype == np.int16 and len(pcm) == round(seconds * rate)
    end = round(0.04 * rate)
    assert any(np.array_equal(pcm[-end:], sentence.pcm(rate)[-end:]) for sentence in sentences())


def test_pauses_have_their_share_and_lengths_and_are_silent() -> None:
    whole = make_trace("speech", {"pauses": 0.0}, 0)
    assert np.isnan(whole.columns()["pause_s"]).all()
    trace = make_trace("speech", {"pauses": 1.0}, 0)
    columns = trace.columns()
    paused = ~np.isnan(columns["pause_s"])
    assert f"pause: {paused.sum()} of {len(paused)} turns" in trace.header.notes
    assert paused.mean() == pytest.approx(pausing(), abs=0.08)
    some = ~np.isnan(make_trace("speech", {"sessions": 500}, 0).columns()["pause_s"])
    assert some.mean() == pytest.approx(0.3, abs=0.03)
    half = ~np.isnan(make_trace("speech", {"pauses": 0.5}, 0).columns()["pause_s"])
    assert (half <= paused).all() and 0.3 < half.mean() < paused.mean()
    for name in ("arrival_s", "reply_audio_s", "think_s", "barge_in_after_s"):
        assert np.array_equal(columns[name], whole.columns()[name], equal_nan=True)
    longer_s = columns["audio_s"] - whole.columns()["audio_s"]
    assert np.allclose(longer_s, np.nan_to_num(columns["pause_s"]))
    for turn, plain in zip(turns(trace)[:20], turns(whole)[:20], strict=True):
        heard, said = (np.frombuffer(b"".join(pcm_for(*each, RATE)), "<i2") for each in ((trace, turn), (whole, plain)))
        if turn.microphone.pause_s:
            at, length = (round(known(s) * RATE) for s in (turn.microphone.pause_after_s, turn.microphone.pause_s))
            assert not heard[at : at + length].any()
            heard = np.delete(heard, slice(at, at + length))
        end = round(known(plain.audio_s) * RATE)
        assert np.array_equal(heard[:end], said[:end])


@given(st.floats(*BREATH_CLIP_S), st.integers(0, 2**32))
def test_breaths_are_medium_pauses(median_s: float, seed: int) -> None:
    lengths_s = breaths(np.random.default_rng(seed), median_s, 200)
    assert BREATH_CLIP_S[0] <= lengths_s.min() and lengths_s.max() <= BREATH_CLIP_S[1]


def test_the_pauses_of_the_voice_are_the_only_ones() -> None:
    """Silences inside its sentences are shorter than those that a detector waits for."""
    for turn in turns(trace := make_trace("speech", {"pauses": 0.0, "sessions": 40}, 0)):
        heard = np.frombuffer(b"".join(pcm_for(trace, turn, RATE)), "<i2")[: round(known(turn.audio_s) * RATE)]
        assert len(segments_of(heard, "energy")) == 1


def test_a_trace_names_the_source_of_its_speech(recordings: Path) -> None:
    recorded = {"path": str(recordings), "skip_bad": True}
    frames = {"duration_s": 4.0, "rate": 4.0}
    for workload, params, own in (("speech", {}, f"voice {NAME}"), ("duplex", {}, f"voice {NAME}"),
                                  ("metronome", frames, "synthetic")):  # fmt: skip
        assert speech_source(make_trace(workload, {"sessions": 2} | params, 0)) == own
        assert speech_source(make_trace(workload, {"sessions": 2} | params | recorded, 0)) == "recordings"
    assert speech_source(make_trace("voice", {"sessions": 2}, 0)) == f"voice {NAME}"
    assert speech_source(make_trace("poisson", {"modality": "text", "reply": "text", "requests": 5}, 0)) is None
    old = make_trace("speech", {"sessions": 1}, 0)
    said = "utterance: synthetic speech 5 sha256 0123456789abcdef 0.00-1.00 s"
    notes = ["synthetic speech: made in code, no recording was used", said]
    made_in_code = Trace.from_columns(old.columns(), generator="speech", notes=notes)
    assert speech_source(made_in_code) == "synthetic"
