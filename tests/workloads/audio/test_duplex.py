from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.audio.conftest import Record
from workloads.audio import library as library_module
from workloads.audio.duplex import Part, Stream, continuous
from workloads.audio.library import Held
from workloads.audio.synth import synthetic_clips
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

RATE = 16_000
CLIPS = synthetic_clips()[:12]


def heard(stream: Stream, seconds: float) -> np.ndarray:
    return np.frombuffer(b"".join(stream.chunks(seconds)), "<i2")


def test_a_stream_repeats_its_clips_end_to_end() -> None:
    (stream,) = continuous(CLIPS, 1, RATE, seed=3)
    order = [part.clip for part in stream.parts]
    assert {clip.name for clip in order if clip} == {clip.name for clip in CLIPS}
    whole = np.concatenate([clip.pcm(RATE) for clip in order if clip])
    seconds = 1.5 * len(whole) / RATE
    assert np.array_equal(heard(stream, seconds)[: round(seconds * RATE)], np.resize(whole, round(seconds * RATE)))
    assert np.array_equal(stream.pcm(12_345, 50_000), np.resize(whole, 62_345)[12_345:])


def test_staggered_streams_differ_from_their_first_frame_on_and_in_order_from_the_seed() -> None:
    streams = continuous(CLIPS, 40, RATE, seed=0)
    assert len({stream.content_key(0, 1.0) for stream in streams}) == 40
    assert len({stream.pcm(0, RATE).tobytes() for stream in streams}) == 40
    gaps = [b.phase - a.phase for a, b in pairwise(streams)]
    assert max(gaps) - min(gaps) <= 320 and min(gaps) > 0
    again, other = continuous(CLIPS, 40, RATE, seed=0), continuous(CLIPS, 40, RATE, seed=1)
    assert [s.content_key(5, 2.0) for s in again] == [s.content_key(5, 2.0) for s in streams]
    assert [s.content_key(5, 2.0) for s in other] != [s.content_key(5, 2.0) for s in streams]


def test_streams_that_are_not_staggered_are_the_same_and_share_their_keys() -> None:
    streams = continuous(CLIPS, 5, RATE, seed=0, staggered=False)
    assert len({stream.content_key(frame, 2.0) for stream in streams for frame in range(4)}) == 4
    assert len({stream.pcm(0, 3 * RATE).tobytes() for stream in streams}) == 1


@pytest.mark.parametrize("frame_s", [0.08, 1.0, 2.0])
def test_frames_with_equal_keys_have_equal_sound(frame_s: float) -> None:
    """And the same piece of the same clips has the same key; only silence may be a pause or a clip's own."""
    pauses = [part for clip in CLIPS[:5] for part in (Part(clip, 0, int(clip.seconds * RATE)), Part(None, 0, RATE))]
    paused = [Stream(pauses, RATE, phase) for phase in (0, RATE, 2 * RATE)]
    streams = [*continuous(CLIPS, 20, RATE, 0), *paused, *paused]
    size = round(frame_s * RATE)
    sounds = [(s.content_key(k, frame_s), s.pcm(k * size, size)) for s in streams for k in range(8)]
    by_key = {key: sound.tobytes() for key, sound in sounds}
    assert all(by_key[key] == sound.tobytes() for key, sound in sounds)
    voiced = [(key, sound.tobytes()) for key, sound in sounds if np.all(np.any(sound.reshape(4, -1), axis=1))]
    assert len({key for key, _ in voiced}) == len({sound for _, sound in voiced}) < len(voiced)
    assert all(0 <= key < 2**53 for key in by_key)


def test_the_waveforms_in_memory_have_a_limit_for_any_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "held", held := Held(limit=300_000))
    monkeypatch.setattr("workloads.audio.synth.held", held)
    streams = continuous(CLIPS, 1000, RATE, seed=0)
    for stream in streams:
        next(stream.chunks(0.02))
        assert held.bytes <= max(300_000, 30 * RATE * 2)


def first_contents(trace: Trace) -> set[float]:
    columns = trace.columns()
    return set(columns["content"][columns["turn"] == 0].tolist())


def test_a_few_recordings_give_128_different_streams(recordings: Path) -> None:
    params = {"path": str(recordings), "skip_bad": True}
    trace = make_trace("metronome", params, 0)
    assert len(first_contents(trace)) == 128
    assert any(note.startswith("audio: ") and note.endswith("without pause") for note in trace.header.notes)
    made_up = make_trace("metronome", {}, 0)
    assert np.array_equal(trace.columns()["output_tokens"], made_up.columns()["output_tokens"])
    assert not np.array_equal(trace.columns()["content"], made_up.columns()["content"])


def test_contents_follow_the_recordings_and_too_few_are_refused(record: Record) -> None:
    folder = record("a.wav", index=3).parent
    params = {"path": str(folder), "sessions": 10, "duration_s": 10}
    one = make_trace("metronome", params, 0)
    assert make_trace("metronome", params, 0) == one
    record("a.wav", index=4)
    assert not first_contents(one) & first_contents(make_trace("metronome", params, 0))
    with pytest.raises(UserError, match=r"s of recordings give no 5000 different streams; give more"):
        make_trace("metronome", params | {"sessions": 5000, "rate": 5000}, 0)
