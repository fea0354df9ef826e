"""Loaders of Full-Duplex-Bench's folders, RTTM and TextGrid: fixtures in their formats, and the sounds they give."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from workloads.audio.synth import SyntheticClip
from workloads.errors import UserError
from workloads.generators.content import event_pcm, pcm_for, recordings, tells_what_is_said
from workloads.registry import make_trace, serves
from workloads.trace import Trace

RATE = 16_000


def write(path: Path, seconds: float, *channels: list[tuple[float, float]], rate: int = RATE) -> np.ndarray:
    """Sound on each channel from each begin to each end, silence elsewhere; gives it, int16 of (samples, channels)."""
    import soundfile

    sound = np.zeros((round(seconds * rate), len(channels)), np.int16)
    for channel, spans in enumerate(channels):
        for begin_s, end_s in spans:
            length = round((end_s - begin_s) * rate)
            burst = np.resize(SyntheticClip(10 + channel).pcm(rate)[: rate // 2], length)
            sound[round(begin_s * rate) :, channel][:length] = burst
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound, rate)
    return sound


def sample(
    folder: Path, seconds: float, spans: list, name: str | None = None, annotation: object = None, rate=RATE
):
    sound = write(folder / "input.wav", seconds, spans, rate=rate)
    if name:
        (folder / name).write_text(json.dumps(annotation))
    (folder / "transcription.json").write_text('{"text": "", "chunks": []}')
    return sound[:, 0]


def heard(packets, samples: int) -> np.ndarray:
    return np.frombuffer(b"".join(packets), "<i2")[:samples]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """One sample of each task of v1 and v1.5, with the benchmark's names of folders and files."""
    pauses = [{"text": "[PAUSE]", "timestamp": [2.0, 2.5]}, {"text": "[PAUSE]", "timestamp": [3.5, 4.3]}]
    sample(
        tmp_path / "candor_pause_handling" / "1",
        6,
        [(0.5, 2), (2.5, 3.5), (4.3, 5)],
        "pause.json",
        pauses,
        48_000,
    )
    turn = [{"text": "[TURN-TAKING]", "timestamp": [3.0, 3.4]}]
    sample(tmp_path / "candor_turn_taking" / "2", 8, [(0.5, 3)], "turn_taking.json", turn)
    cut = [{"context": "tell me", "interrupt": "wait", "timestamp": [10.0, 12.0]}]
    sample(tmp_path / "synthetic_user_interruption" / "10", 17, [(0, 3), (10, 12)], "interrupt.json", cut)
    sample(tmp_path / "icc_backchannel" / "3", 6, [(0.5, 5)])
    over = {"context_text": "tell me", "current_turn_text": "mhm", "timestamps": [7.0, 7.5]}
    for task in ("user_backchannel", "talking_to_other", "background_speech", "user_interruption"):
        sample(tmp_path / "v1.5" / task / "4", 12, [(0.2, 3), (7, 7.5)], "metadata.json", over)
    return tmp_path


def test_every_task_of_the_bench_becomes_a_call(bench: Path) -> None:
    trace = make_trace("full_duplex_bench", {"path": str(bench)}, 0)
    assert serves(trace) == "duplex" and tells_what_is_said(trace) and len(trace.sessions) == 8
    by_name = {
        note.split(": ")[1].split(" sha256")[0]: int(note.split(" ")[1].split(".")[0])
        for note in trace.header.notes
        if note.startswith("turn ")
    }
    calls = {session.id: session.turns for session in trace.sessions}

    def of(folder: str):
        return calls[by_name[f"{folder}/input.wav"]]

    (pause,) = of("candor_pause_handling/1")
    assert pause.audio_s == pytest.approx(4.5, abs=0.03) and pause.microphone.pause_s == pytest.approx(0.8)
    assert pause.microphone.pause_after_s == pytest.approx(3.0, abs=0.03)
    (turn,) = of("candor_turn_taking/2")
    assert turn.audio_s == pytest.approx(2.5, abs=0.03) and turn.microphone.event is None
    (talk,) = of("icc_backchannel/3")
    assert talk.audio_s == pytest.approx(4.5, abs=0.03)
    first, words = of("synthetic_user_interruption/10")
    assert (first.microphone.event, first.microphone.event_s, words.audio_s) == ("interruption", 2.0, 2.0)
    # 7 s after the context, 1 s of them to the reply
    assert first.microphone.event_after_s == pytest.approx(6.0, abs=0.05)
    for task, kind in (
        ("user_backchannel", "backchannel"),
        ("talking_to_other", "side_speech"),
        ("background_speech", "background_speech"),
    ):
        (one,) = of(f"v1.5/{task}/4")
        assert (one.microphone.event, one.microphone.event_s) == (kind, 0.5)
        assert one.microphone.event_after_s == pytest.approx(3.0, abs=0.05)
    assert [turn.microphone.event for turn in of("v1.5/user_interruption/4")] == ["interruption", None]
    assert "Full-Duplex-Bench: 1 samples of pause handling" in trace.header.notes
    assert all(turn.reply_audio_s > 0 for turns in calls.values() for turn in turns)


def test_the_sounds_are_those_of_the_samples(bench: Path, tmp_path: Path) -> None:
    trace = make_trace("full_duplex_bench", {"path": str(bench), "sessions": 12}, 0)
    assert len(trace.sessions) == 12
    trace.save(tmp_path / "trace.parquet")
    trace = Trace.load(tmp_path / "trace.parquet")
    assert set(recordings(trace)) == {str(p.relative_to(bench)) for p in bench.rglob("input.wav")}
    for session in trace.sessions:
        for turn in session.turns:
            whole = heard(pcm_for(trace, turn), round(turn.audio_s * RATE))
            assert len(whole) == round(turn.audio_s * RATE) and whole[:480].any() and whole[-480:].any()
            if turn.microphone.pause_s:
                begin = round(turn.microphone.pause_after_s * RATE)
                assert not whole[begin + 80 : begin + round(turn.microphone.pause_s * RATE) - 80].any()
            if turn.microphone.event == "interruption":
                assert list(event_pcm(trace, turn)) == list(pcm_for(trace, session.turns[1]))
            elif turn.microphone.event:
                assert np.array_equal(
                    heard(event_pcm(trace, turn), 4_000),
                    np.resize(SyntheticClip(10).pcm(RATE)[:8_000], 4_000),
                )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("pause.json", "[", "is no JSON"),
        ("pause.json", "{}", "holds no list of annotations"),
        (
            "pause.json",
            '[{"timestamp": [3, 1]}]',
            r"timestamp is \[3.0, 1.0\] and must be a begin and an end within 6.00 s",
        ),
        ("turn_taking.json", '[{"timestamp": "now"}]', "timestamp is now and must be times in s"),
        ("turn_taking.json", '[{"timestamp": [99, 1]}]', "timestamp is 99.0 and must lie in the recording"),
        ("interrupt.json", '[{"timestamp": [0.1, 1]}]', "its time is 0.1 and has no speech before it"),
        ("metadata.json", '{"timestamps": [3, 4]}', "does not lie below one of user_interruption"),
    ],
)
def test_bad_annotations_of_the_bench(tmp_path: Path, name: str, content: str, said: str) -> None:
    sample(tmp_path / "1", 6, [(0.5, 2)])
    (tmp_path / "1" / name).write_text(content)
    with pytest.raises(UserError, match=said):
        make_trace("full_duplex_bench", {"path": str(tmp_path)}, 0)


def test_folders_that_are_no_bench(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no folder with an input\.wav"):
        make_trace("full_duplex_bench", {"path": str(tmp_path)}, 0)
    with pytest.raises(UserError, match="which is no folder"):
        make_trace("full_duplex_bench", {"path": str(tmp_path / "gone")}, 0)


USER = [(0.5, 2.0), (2.8, 4.0), (6.0, 6.4), (9.0, 11.0), (16.0, 17.0)]
OTHER = [(4.5, 9.5), (11.5, 14.0)]
RTTM = "".join(
    f"SPEAKER call 1 {begin:.3f} {end - begin:.3f} <NA> <NA> {name} <NA> <NA>\n"
    for name, spans in (("anna", USER), ("ben", OTHER))
    for begin, end in spans
)


def intervals(spans: list[tuple[float, float]], end_s: float = 18.0) -> list[tuple[float, float, str]]:
    edges = [0.0, *(t for span in spans for t in span), end_s]
    return [(a, b, "" if i % 2 == 0 else 'so "well"') for i, (a, b) in enumerate(pairwise(edges))]


def textgrid(short: bool = False) -> str:
    def value(label: str, value: object) -> str:
        text = '"' + value.replace('"', '""') + '"' if isinstance(value, str) else f"{value}"
        return f"{text}\n" if short else f"    {label} = {text}\n"

    lines = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
    lines += (
        value("xmin", 0)
        + value("xmax", 18)
        + ("<exists>\n" if short else "tiers? <exists> \n")
        + value("size", 3)
    )
    for at, (name, spans) in enumerate((("anna", USER), ("ben 2", OTHER))):
        rows = intervals(spans)
        lines += "" if short else f"item [{at + 1}]:\n"
        lines += value("class", "IntervalTier") + value("name", name) + value("xmin", 0) + value("xmax", 18)
        lines += value("intervals: size", len(rows))
        for number, (begin, end, text) in enumerate(rows):
            lines += "" if short else f"    intervals [{number + 1}]:\n"
            lines += value("xmin", begin) + value("xmax", end) + value("text", text)
    lines += "" if short else "item [3]:\n"
    lines += value("class", "TextTier") + value("name", "bell") + value("xmin", 0) + value("xmax", 18)
    return lines + value("points: size", 1) + value("number", 3.5) + value("mark", "rings")


def two_channels(tmp_path: Path, kind: str) -> tuple[Path, np.ndarray]:
    sound = write(tmp_path / "call.wav", 18, USER, OTHER)
    if kind == "rttm":
        (tmp_path / "call.rttm").write_text(RTTM)
    else:
        text = textgrid(short="short" in kind)
        (tmp_path / "call.TextGrid").write_bytes(text.encode("utf-16" if "16" in kind else "utf-8"))
    return tmp_path, sound


@pytest.mark.parametrize("kind", ["rttm", "long", "short", "long 16"])
def test_a_call_on_two_channels(tmp_path: Path, kind: str) -> None:
    """Two stretches with a silence of 0.8 s are a turn; what lies inside the reply a backchannel, what outlasts it the
    next turn, which would be an interruption had the reply not been over."""
    folder, sound = two_channels(tmp_path, kind)
    trace = make_trace("two_channel", {"path": str(folder)}, 0)
    (session,) = trace.sessions
    first, second, third = session.turns
    assert (first.audio_s, first.microphone.pause_after_s, first.microphone.pause_s) == (3.5, 1.5, 0.8)
    assert (first.microphone.event, first.microphone.event_after_s, first.microphone.event_s) == (
        "interruption",
        4.5,
        2.0,
    )
    assert (first.reply_audio_s, second.reply_audio_s, second.audio_s, third.think_s) == (5.0, 2.5, 2.0, 2.0)
    assert second.microphone.event is None and third.microphone.event is None
    assert "1 events more fell on turns that had one" in trace.header.notes  # the backchannel
    for turn, (begin_s, end_s) in zip(session.turns, [(0.5, 4.0), (9.0, 11.0), (16.0, 17.0)], strict=True):
        own = sound[round(begin_s * RATE) : round(end_s * RATE), 0]
        assert np.array_equal(heard(pcm_for(trace, turn), len(own)), own)


def test_the_other_speaker_as_the_user(tmp_path: Path) -> None:
    folder, sound = two_channels(tmp_path, "rttm")
    trace = make_trace("two_channel", {"path": str(folder), "user": "ben"}, 0)
    first, last = trace.sessions[0].turns
    assert (first.audio_s, last.audio_s) == (5.0, 2.5)
    own = sound[round(4.5 * RATE) : round(9.5 * RATE), 1]
    assert np.array_equal(heard(pcm_for(trace, first), len(own)), own)


def test_a_backchannel_alone_is_the_turns_event(tmp_path: Path) -> None:
    user, other = [(0.5, 2.0), (4.0, 4.4)], [(3.0, 6.0)]
    sound = write(tmp_path / "call.wav", 8, user, other)
    lines = [("a", "1", user), ("b", "2", other)]
    (tmp_path / "all.rttm").write_text(
        "".join(
            f"SPEAKER call {ch} {b} {e - b} <NA> <NA> {name} <NA> <NA>\n"
            for name, ch, spans in lines
            for b, e in spans
        )
        + "SPKR-INFO call 1 <NA> <NA> <NA> unknown a <NA> <NA>\n"
    )
    trace = make_trace("two_channel", {"path": str(tmp_path)}, 0)
    ((turn,),) = (session.turns for session in trace.sessions)
    assert (turn.microphone.event, turn.microphone.event_after_s, turn.microphone.event_s) == (
        "backchannel",
        1.0,
        0.4,
    )
    murmur = sound[4 * RATE : round(4.4 * RATE), 0]
    assert np.array_equal(heard(event_pcm(trace, turn), len(murmur)), murmur)


@pytest.mark.parametrize(
    ("files", "params", "said"),
    [
        ({}, {}, r"has no \.rttm or \.TextGrid that names one of its 1 recordings"),
        ({"x.rttm": RTTM.replace("call", "other")}, {}, r"has no \.rttm or \.TextGrid"),
        (
            {"x.rttm": "SPEAKER call 1 a 1\n"},
            {},
            r"x\.rttm line 1 is 'SPEAKER call 1 a 1'; give SPEAKER file",
        ),
        ({"x.rttm": RTTM}, {"user": "carl"}, "user is 'carl', but call has anna and ben; name one of them"),
        (
            {"x.rttm": RTTM.replace("ben", "anna")},
            {},
            r"call has 1 speakers \(anna\); give calls of two people",
        ),
        ({"call.TextGrid": "hello"}, {}, r"call\.TextGrid is no TextGrid; save it from Praat as one"),
    ],
)
def test_annotations_that_cannot_be_used(tmp_path: Path, files: dict, params: dict, said: str) -> None:
    write(tmp_path / "call.wav", 18, USER, OTHER)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=said):
        make_trace("two_channel", {"path": str(tmp_path), **params}, 0)


def test_a_recording_without_the_channel(tmp_path: Path) -> None:
    write(tmp_path / "call.wav", 18, USER)
    (tmp_path / "call.rttm").write_text(RTTM)
    with pytest.raises(UserError, match="has no channel 2 but 1 in all"):
        make_trace("two_channel", {"path": str(tmp_path), "user": "ben"}, 0)
