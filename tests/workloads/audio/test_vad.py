from pathlib import Path

import numpy as np
import pytest

from tests.workloads.audio.conftest import Record
from workloads.audio.decode import BadRecording
from workloads.audio.library import Library
from workloads.audio.synth import SyntheticClip
from workloads.audio.utterances import LONGEST_S, turns_of, utterances
from workloads.audio.vad import Method, Segment, segments, segments_of


@pytest.mark.parametrize(("method", "least"), [("webrtc", 0.9), ("silero", 0.85)])
def test_onsets_of_speech(recordings: Path, method: Method, least: float) -> None:
    """Must show 6: within 100 ms of the energy truth for 9 of 10 utterances; silero answers every 32 ms only."""
    if method == "silero":
        pytest.importorskip("onnxruntime", reason="needs the extra silero")
        pytest.importorskip("silero_vad", reason="needs the extra silero")
    clips = Library.scan(recordings, skip_bad=True).clips
    off_s = np.array([segments(clip, method)[0].start_s - segments(clip, "energy")[0].start_s for clip in clips])
    share = np.mean(np.abs(off_s) <= 0.1)
    print(
        f"\n{method}: {share:.1%} of {len(clips)} onsets within 100 ms of the energy truth; "
        f"P10/P50/P90 {np.percentile(off_s * 1000, (10, 50, 90)).round()} ms"
    )
    assert share >= least


@pytest.mark.parametrize("method", ["webrtc", "energy"])
def test_silence_before_and_after_speech_is_found(method: Method) -> None:
    speech = SyntheticClip(3).pcm(16_000)
    quiet = np.random.default_rng(0).normal(0, 5, 16_000).astype(np.int16)
    found = segments_of(np.concatenate([quiet, speech, quiet]), method)
    assert found[0].start_s == pytest.approx(1.0, abs=0.1)
    assert found[-1].end_s == pytest.approx(1.0 + len(speech) / 16_000, abs=0.2)
    edges = [edge for each in found for edge in (each.start_s, each.end_s)]
    assert edges == sorted(edges)


def test_hiss_is_no_speech(record: Record, tmp_path: Path) -> None:
    import soundfile

    hiss = np.random.default_rng(0).normal(0, 0.01, 32_000)
    soundfile.write(tmp_path / "hiss.wav", hiss, 16_000)
    (clip,) = Library.scan(tmp_path).clips
    assert segments(clip) == []
    with pytest.raises(BadRecording, match=r"hiss\.wav: holds no speech that a detector finds") as error:
        utterances(clip)
    assert error.value.kind == "without speech"


def test_utterances_end_at_long_pauses_and_before_30_s() -> None:
    turns = turns_of([Segment(0.5, 2.0), Segment(2.9, 4.0), Segment(5.1, 6.0), Segment(7.1, 81.0)])
    assert turns[:2] == [Segment(0.5, 4.0), Segment(5.1, 6.0)]
    assert all(turn.end_s - turn.start_s <= LONGEST_S for turn in turns)
    assert [turn.start_s for turn in turns[2:]] == pytest.approx([7.1, 31.733, 56.367], abs=1e-3)
    assert [turn.end_s for turn in turns[2:]] == pytest.approx([31.733, 56.367, 81.0], abs=1e-3)
