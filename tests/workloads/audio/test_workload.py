"""Workload speech: turns that are recordings, what its header says of them, and the sound of a turn."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.golden.pinned import check_trace
from tests.workloads.audio.conftest import Record
from workloads.audio import voice
from workloads.audio.library import Library
from workloads.audio.synth import SyntheticClip
from workloads.audio.utterances import utterances
from workloads.audio.vad import segments
from workloads.errors import UserError
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
    params = {"path": str(recordings), "skip_bad": True, "p": 0.5, "sessions": 200}
    trace = make_trace("speech", params, 0)
    library = Library.scan(recordings, skip_bad=True)
    said = [said for clip in library.clips for said in utterances(clip)]
    assert {turn.audio_s for turn in turns(trace)} <= {one.seconds for one in said}
    assert "synthetic" not in " ".join(trace.header.notes)
    seconds = sum(one.seconds for one in said)
    assert trace.header.notes[0] == (
        f"speech: {len(said)} utterances, {seconds:.0f} s, from {len(library.clips)} recordings"
    )
    assert "2 files passed over: 2 silent" in trace.header.notes
    assert len(named(trace)) == len(said)
    for session in trace.sessions:  # nobody repeats himself before he has said all
        first = Counter(turn.audio_s for turn in session.turns[: len(said)])
        assert first <= Counter(one.seconds for one in said)


def test_p_and_policy_change_only_the_barge_ins() -> None:
    def column(name: str, **params: object) -> np.ndarray:
        return make_trace("speech", {"sessions": 400, **params}, 1).columns()[name]

    for name in ("audio_s", "arrival_s", "reply_audio_s", "think_s", "output_tokens"):
        first = column(name)
        for params in ({"p": 0.4}, {"p": 0.4, "cut": "truncate"}):
            assert np.array_equal(first, column(name, **params), equal_nan=True)
    replies = column("reply_audio_s")
    natural, truncate = column("barge_in_after_s", p=0.4), column("barge_in_after_s", p=0.4, cut="truncate")
    drawn = ~np.isnan(natural)
    assert np.array_equal(drawn, ~np.isnan(truncate))
    assert (truncate[drawn] < replies[drawn]).all()
    assert 0.3 < np.mean(natural[drawn] >= replies[drawn]) < 0.7
    fewer = column("barge_in_after_s", p=0.1)
    assert np.array_equal(fewer[~np.isnan(fewer)], natural[~np.isnan(fewer)])


def test_both_barge_in_rates_are_in_the_header() -> None:
    for policy in ("natural", "truncate"):
        trace = make_trace("speech", {"p": 0.5, "cut": policy}, 0)
        columns = trace.columns()
        drawn = np.mean(~np.isnan(columns["barge_in_after_s"]))
        timely = np.mean(columns["barge_in_after_s"] < columns["reply_audio_s"])
        assert (
            f"barge-ins, cut policy {policy}: drawn in {drawn:.1%} of turns, before the reply's end in "
            f"{timely:.1%}, missed in {drawn - timely:.1%}"
        ) in trace.header.notes


def test_pauses_and_overlaps_are_those_of_conversation() -> None:
    columns = make_trace("speech", {"sessions": 3000}, 0).columns()
    think = columns["think_s"][~np.isnan(columns["think_s"])]
    assert np.median(think) == pytest.approx(0.2, rel=0.05)
    columns = make_trace("speech", {"sessions": 3000, "overlap": 0.4}, 0).columns()
    early = columns["reply_audio_s"] - columns["barge_in_after_s"]
    assert np.mean(~np.isnan(early)) == pytest.approx(0.4, abs=0.02)
    assert np.nanmedian(early) == pytest.approx(0.205, rel=0.1)


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


def test_sounds_that_cannot_be_had(record: Record) -> None:
    path = record("a.wav", index=3)
    trace = make_trace("speech", {"path": str(path.parent), "sessions": 2, "turns": 1}, 0)
    turn = turns(trace)[0]
    with pytest.raises(UserError, match=r"audio_s is 99\.0 but its utterance lasts .* the trace was changed"):
        pcm_for(trace, replace(turn, audio_s=99.0))
    other = make_trace("voice", {"sessions": 1}, 0)
    with pytest.raises(UserError, match=r"^workload voice says how long its users speak but not what; use"):
        pcm_for(other, turns(other)[0])
    record("a.wav", index=4)
    content.known_utterances.cache_clear()
    with pytest.raises(UserError, match=r"^a\.wav is not the sound that the trace was made with"):
        pcm_for(trace, turn)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_bad_recordings(record: Record, tmp_path: Path, skip_bad: bool) -> None:
    import soundfile

    folder = record("good.wav", index=3).parent
    (folder / "bad.wav").write_bytes(b"RIFF")
    soundfile.write(folder / "hiss.wav", np.random.default_rng(0).normal(0, 0.01, 32_000), 16_000)
    params = {"path": str(folder), "skip_bad": skip_bad}
    if skip_bad:
        notes = make_trace("speech", params, 0).header.notes
        assert "2 files passed over: 1 corrupt, 1 without speech" in notes
        (folder / "good.wav").unlink()
    with pytest.raises(UserError) as error:
        make_trace("speech", params, 0)
    expected = (
        f"{folder} has no usable recording (1 corrupt, 1 without speech); give another folder."
        if skip_bad
        else f"{folder}/bad.wav: is damaged or no audio file; remove the file, or pass over such files "
        "(skip_bad=true or --skip-bad)."
    )
    assert str(error.value) == expected


def test_synthetic_speech_is_taken_for_speech() -> None:
    for index in range(30):
        clip = SyntheticClip(index)
        spoken = sum(found.end_s - found.start_s for found in segments(clip))
        assert spoken > 0.6 * clip.seconds
        assert len(clip.pcm(16_000)) == round(clip.seconds * 16_000)


def test_the_voice_needs_optional_packages_for_its_sound_alone(record: Record) -> None:
    code = (
        "import sys\n"
        "for name in ('soundfile', 'soxr', 'webrtcvad', 'av'): sys.modules[name] = None\n"
        "from workloads.registry import make_trace\n"
        "from workloads.generators.content import pcm_for\n"
        "trace = make_trace('speech', {}, 0)\n"
        "print(len(trace.sessions))\n"
        "try: pcm_for(trace, trace.sessions[0].turns[0])\n"
        "except Exception as error: print(error)\n"
        "try: make_trace('speech', {'path': sys.argv[1]}, 0)\n"
        "except Exception as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(record("a.wav").parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    missing = f"this needs the package soundfile, which is not installed; run {install_command('audio')}."
    assert done.stdout.splitlines() == ["64", missing, missing]
