import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.builders import refused
from tests.golden.pinned import check_trace
from tests.workloads.audio.conftest import Record
from workloads.audio import voice
from workloads.audio.library import Library
from workloads.audio.utterances import utterances
from workloads.generators import content
from workloads.generators.content import pcm_for
from workloads.optional import install_command
from workloads.registry import make_trace
from workloads.trace import Trace


def turns(trace: Trace) -> list:
    return [turn for session in trace.sessions for turn in session.turns]


def named(trace: Trace) -> list[str]:
    return [note for note in trace.header.notes if note.startswith("utterance: ")]


def test_golden_trace_of_the_voice() -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    trace = make_trace("speech", {"p": 0.3}, 0)
    check_trace("trace_speech", trace)
    assert trace.header.notes[0] == voice.note()
    assert voice.note().startswith(f"synthetic speech: voice {voice.NAME}, ")
    assert all(voice.NAME in note for note in named(trace))


def test_turns_last_as_long_as_the_utterances_in_recordings(recordings: Path) -> None:
    trace = make_trace("speech", {"path": str(recordings), "skip_bad": True, "p": 0.5, "sessions": 200}, 0)
    library = Library.scan(recordings, skip_bad=True)
    seconds = Counter(said.seconds for clip in library.clips for said in utterances(clip))
    n = seconds.total()
    said = f"speech: {n} utterances, {sum(seconds.elements()):.0f} s, from {len(library.clips)} recordings"
    assert trace.header.notes[0] == said and "synthetic" not in " ".join(trace.header.notes)
    assert "2 files passed over: 2 silent" in trace.header.notes
    assert len(named(trace)) == n
    assert {turn.audio_s for turn in turns(trace)} <= set(seconds)
    for session in trace.sessions:  # nobody repeats himself before he has said all
        assert Counter(turn.audio_s for turn in session.turns[:n]) <= seconds


@pytest.mark.parametrize("policy", ["natural", "truncate"])
def test_the_header_states_the_share_of_barge_ins_before_the_end_of_the_reply(policy: str) -> None:
    trace = make_trace("speech", {"sessions": 400, "p": 0.4, "cut": policy}, 1)
    columns = trace.columns()
    drawn = np.mean(~np.isnan(columns["barge_in_after_s"]))
    timely = np.mean(columns["barge_in_after_s"] < columns["reply_audio_s"])
    assert drawn == pytest.approx(0.4, abs=0.05)
    assert (drawn == timely) == (policy == "truncate")
    said = f"drawn in {drawn:.1%} of turns, before the reply's end in {timely:.1%}, missed in {drawn - timely:.1%}"
    assert f"barge-ins, cut policy {policy}: {said}" in trace.header.notes


def test_the_sound_of_a_turn_is_its_utterance(record: Record) -> None:
    for index in (3, 7, 9):
        folder = record(f"{index}.wav", index=index).parent
    trace = make_trace("speech", {"path": str(folder), "sessions": 20}, 0)
    known = {said.seconds: said for clip in Library.scan(folder).clips for said in utterances(clip)}
    for turn in turns(trace):
        for rate in (16_000, 24_000):
            packets = list(pcm_for(trace, turn, rate))
            assert {len(packet) for packet in packets} == {rate // 25}
            assert len(packets) == np.ceil(round(turn.audio_s * 50, 6))
            assert packets == list(pcm_for(trace, turn, rate))
            sound = np.frombuffer(b"".join(packets), "<i2")[: round(turn.audio_s * rate)]
            assert np.array_equal(sound, known[turn.audio_s].pcm(rate))


def test_a_changed_recording_or_turn_is_not_heard(record: Record) -> None:
    trace = make_trace("speech", {"path": str(record("a.wav", index=3).parent), "sessions": 2, "turns": 1}, 0)
    turn = turns(trace)[0]
    with refused("audio_s is 99.0 but its utterance lasts", "the trace was changed"):
        pcm_for(trace, replace(turn, audio_s=99.0))
    record("a.wav", index=4)
    content.known_utterances.cache_clear()
    with refused("a.wav is not the sound that the trace was made with"):
        pcm_for(trace, turn)


WITHOUT_PACKAGES = """
import sys
for name in ("soundfile", "soxr", "webrtcvad", "av"): sys.modules[name] = None
from workloads.registry import make_trace
from workloads.generators.content import pcm_for
trace = make_trace("speech", {}, 0)
print(len(trace.sessions))
hear = lambda: pcm_for(trace, trace.sessions[0].turns[0])
for action in (hear, lambda: make_trace("speech", {"path": sys.argv[1]}, 0)):
    try: action()
    except Exception as error: print(error)
"""


def test_the_voice_needs_optional_packages_for_its_sound_alone(record: Record) -> None:
    command = [sys.executable, "-c", WITHOUT_PACKAGES, str(record("a.wav").parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    missing = f"this needs the package soundfile, which is not installed; run {install_command('audio')}."
    assert done.stdout.splitlines() == ["64", missing, missing]


def test_bad_recordings_are_refused(record: Record) -> None:
    import soundfile

    folder = record("good.wav", index=3).parent
    (folder / "bad.wav").write_bytes(b"RIFF")
    soundfile.write(folder / "hiss.wav", np.random.default_rng(0).normal(0, 0.01, 32_000), 16_000)
    params = {"path": str(folder)}
    advice = "remove the file, or pass over such files (skip_bad=true or --skip-bad)."
    with refused(f"{folder}/bad.wav: is damaged or no audio file; {advice}"):
        make_trace("speech", params, 0)
    notes = make_trace("speech", {**params, "skip_bad": True}, 0).header.notes
    assert "2 files passed over: 1 corrupt, 1 without speech" in notes
    (folder / "good.wav").unlink()
    with refused(f"{folder} has no usable recording (1 corrupt, 1 without speech); give another folder."):
        make_trace("speech", {**params, "skip_bad": True}, 0)
