"""Workload duplex: what happens when, that more of one kind changes no other, and sounds where the trace has them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.golden.pinned import check_trace
from tests.workloads.audio.conftest import Record
from workloads.audio import pauses, phrases, synth
from workloads.audio.library import Library
from workloads.audio.phrases import Phrases, spoken_phrases, voice_phrases
from workloads.audio.vad import segments_of
from workloads.audio.voice import sentences
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR
from workloads.errors import UserError
from workloads.generators import duplex
from workloads.generators.content import event_pcm, pcm_for, recordings, tells_what_is_said
from workloads.registry import make_trace, serves
from workloads.trace import Trace, Turn

KINDS = {
    "interruption": "p",
    "correction": "corrections",
    "backchannel": "backchannels",
    "side_speech": "side_speech",
    "background_speech": "background_speech",
    "noise": "noise",
}
NONE = dict.fromkeys([*KINDS.values(), "hesitations"], 0.0)
RATE = 16_000
LONG = 8  # a synthetic clip of several breaths


def made(seed: int = 0, **params: object) -> Trace:
    return make_trace("duplex", {"sessions": 200, **params}, seed)


def turns(trace: Trace) -> list[Turn]:
    return [turn for session in trace.sessions for turn in session.turns]


def sound(trace: Trace, turn: Turn, rate: int = RATE) -> np.ndarray:
    packets = list(pcm_for(trace, turn, rate))
    assert packets == list(pcm_for(trace, turn, rate))
    assert {len(packet) for packet in packets} == {rate // 25}
    return np.frombuffer(b"".join(packets), "<i2").astype(float)


def event_sound(trace: Trace, turn: Turn, rate: int = RATE) -> np.ndarray:
    packets = list(event_pcm(trace, turn, rate))
    assert packets == list(event_pcm(trace, turn, rate))
    return np.frombuffer(b"".join(packets), "<i2").astype(float)


def level_db(sound: np.ndarray) -> float:
    return 10 * np.log10(np.mean(sound**2))


def test_golden_trace() -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    trace = make_trace("duplex", {}, 0)
    check_trace("trace_duplex", trace)
    assert serves(trace) == "duplex" and tells_what_is_said(trace)


@pytest.mark.parametrize("kind", KINDS)
def test_more_of_one_kind_changes_nothing_else(kind: str) -> None:
    """But that a turn has one event: what comes later in the order gives way to it."""
    few, many = (made(**{KINDS[kind]: share}).columns() for share in (0.1, 0.5))
    beside = (
        "audio_s",
        "arrival_s",
        "reply_audio_s",
        "output_tokens",
        "think_s",
        "network_s",
        "pause_s",
        "pause_after_s",
    )
    for name in beside:
        assert np.array_equal(few[name], many[name], equal_nan=True), name
    changed = few["event"] != many["event"]
    assert changed.any()
    assert (many["event"][changed] == kind).all()
    gone = set(few["event"][changed]) - {""}
    assert gone <= set(duplex.PRECEDENCE[duplex.PRECEDENCE.index(kind) + 1 :])
    for name in ("event_after_s", "event_s"):
        assert np.array_equal(few[name][~changed], many[name][~changed], equal_nan=True)


def test_hesitations_change_only_the_turns_that_have_them() -> None:
    none, some = (made(hesitations=share).columns() for share in (0.0, 0.5))
    held = ~np.isnan(some["pause_s"])
    assert 0.4 < held.mean() < 0.6
    assert np.allclose(some["audio_s"] - none["audio_s"], np.nan_to_num(some["pause_s"]))
    for name in ("event", "event_after_s", "reply_audio_s", "think_s"):
        assert np.array_equal(none[name], some[name], equal_nan=some[name].dtype.kind == "f")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_alone_has_its_share_and_its_lengths(kind: str) -> None:
    trace = made(sessions=1500, **NONE | {KINDS[kind]: 0.3})
    columns = trace.columns()
    here = columns["event"] == kind
    followed = np.append(columns["session"][1:] == columns["session"][:-1], False)
    assert set(columns["event"]) == {"", kind}
    assert np.mean(here[followed] if kind in TAKES_FLOOR else here) == pytest.approx(0.3, abs=0.02)
    assert f"{kind}: {here.sum()} of {len(here)} turns" in trace.header.notes
    after_s, length_s, reply_s = (columns[name][here] for name in ("event_after_s", "event_s", "reply_audio_s"))
    if kind in TAKES_FLOOR:
        assert (here <= followed).all()
        assert np.array_equal(length_s, np.roll(columns["audio_s"], -1)[here])
    if kind == "correction":
        assert after_s.min() >= 0.3 and after_s.max() <= 2.0
    elif kind == "interruption":
        assert ((after_s >= 0.1 * reply_s - 1e-6) & (after_s <= 0.9 * reply_s + 1e-6)).all()
    else:
        median_s, _, shortest_s, longest_s = duplex.LENGTHS[kind]
        assert np.median(length_s) == pytest.approx(median_s, rel=0.1)
        assert length_s.min() >= shortest_s and length_s.max() <= longest_s
        fits = length_s <= reply_s
        assert (after_s[fits] + length_s[fits] <= reply_s[fits] + 1e-6).all()


def test_hesitations_are_as_long_as_pauses_in_speech() -> None:
    """Campione and Véronis 2002: 200 to 1000 ms, and longer ones of a second kind."""
    pause_s = made(sessions=1500, hesitations=1.0).columns()["pause_s"]
    pause_s = pause_s[~np.isnan(pause_s)]
    assert pause_s.min() >= 0.3 and pause_s.max() <= 2.0
    assert np.mean(pause_s > 1) == pytest.approx(pauses.LONG_SHARE.value, abs=0.06)
    assert np.median(pause_s[pause_s < 1]) == pytest.approx(0.48, abs=0.06)  # of those above 0.3 s


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_the_silence_of_a_hesitation_is_where_the_trace_has_it(recordings: Path, rate: int) -> None:
    trace = make_trace("duplex", {"path": str(recordings), "skip_bad": True, "sessions": 12, "hesitations": 1.0}, 0)
    spoken = {
        (turn.session, turn.turn): turn
        for turn in turns(make_trace("duplex", {**trace.header.params, "hesitations": 0}, 0))
    }
    for turn in turns(trace):
        heard, plain = sound(trace, turn, rate), sound(trace, spoken[turn.session, turn.turn], rate)
        if turn.microphone.pause_s is None:
            assert np.array_equal(heard, plain)
            continue
        begin, length = round(turn.microphone.pause_after_s * rate), round(turn.microphone.pause_s * rate)
        whole = round(turn.audio_s * rate)
        assert not heard[begin : begin + length].any()
        without = np.concatenate([heard[:begin], heard[begin + length : whole]])
        assert np.array_equal(without, plain[: len(without)]) and len(without) == whole - length


def test_the_only_silence_that_a_detector_finds_is_the_hesitation() -> None:
    trace = made(sessions=12, hesitations=1.0)
    for turn in turns(trace):
        heard = sound(trace, turn)[: round(turn.audio_s * RATE)]
        found = segments_of(heard.astype(np.int16), "energy")
        expected = [(0.0, turn.audio_s)]
        if turn.microphone.pause_s is not None:
            end_s = turn.microphone.pause_after_s + turn.microphone.pause_s
            expected = [(0.0, turn.microphone.pause_after_s), (end_s, turn.audio_s)]
        assert np.allclose([(one.start_s, one.end_s) for one in found], expected, atol=0.11)


def test_speech_of_a_recording_begins_and_ends_with_its_sound(record: Record) -> None:
    """Within 10 ms of what energy says; the detector alone is 80 ms late at the end."""
    import soundfile

    folder = record("a.wav", index=LONG).parent
    own, _ = soundfile.read(folder / "a.wav", dtype="int16")
    noise = np.random.default_rng(0).normal(0, 3, 8_000).astype(np.int16)
    soundfile.write(folder / "a.wav", np.concatenate([noise, own, noise]), RATE)
    (recording,) = Library.scan(folder).clips
    (said,) = spoken_phrases(recording)
    assert said.spans[0][0] == pytest.approx(0.5, abs=0.011)
    assert said.spans[-1][1] == pytest.approx(0.5 + len(own) / RATE, abs=0.021)
    plan = synth._plan(LONG)
    groups = [(group[0, 0], group[-1, 1]) for group in np.split(plan, range(synth.PHRASE, len(plan), synth.PHRASE))]
    assert len(said.spans) == len(groups) > 1
    inner = np.array(said.spans) - 0.5 - np.array(groups)
    assert np.abs(inner).max() < 0.04


def test_the_voice_hesitates_where_its_sentences_are_unfinished() -> None:
    for sentence in sentences():
        (said,) = voice_phrases(sentence)
        assert said.seconds == pytest.approx(sentence.seconds)
        assert set(said.places()) <= set(sentence.places_s)
        assert all(phrases.EDGE_S <= at_s <= said.seconds - phrases.EDGE_S for at_s in said.places())
    assert Phrases(sentences()[0], ((0.0, 0.5),)).places() == []


def test_the_quietest_place_of_a_recording_in_one_breath(record: Record) -> None:
    import soundfile

    tone = (8_000 * np.sin(np.arange(2 * RATE) * 0.3)).astype(np.int16)
    tone[19_200:19_360] //= 50
    folder = record("a.wav").parent
    soundfile.write(folder / "a.wav", tone, RATE)
    (recording,) = Library.scan(folder).clips
    assert Phrases(recording, ((0.0, 2.0),)).places() == [1.2]


@pytest.mark.parametrize(
    ("kind", "param", "below_db"),
    [
        ("backchannel", {}, 0.0),
        ("side_speech", {"side_db": 9.0}, 9.0),
        ("background_speech", {"background_db": 20.0}, 20.0),
        ("noise", {"noise_db": 3.0}, 3.0),
    ],
)
def test_sounds_beside_turns_have_their_length_and_level(kind: str, param: dict, below_db: float) -> None:
    trace = made(sessions=30, **NONE | {KINDS[kind]: 1.0} | param)
    clips: set[bytes] = set()
    for turn in turns(trace):
        heard, samples = event_sound(trace, turn), round(turn.microphone.event_s * RATE)
        assert len(heard) - samples in range(320) and not heard[samples:].any()
        there, edge = np.flatnonzero(heard), (0.005 if kind == "noise" else 0.03) * RATE  # words begin softly
        assert there[0] <= edge and there[-1] >= samples - edge
        own = sound(trace, turn)[: round(turn.audio_s * RATE)]
        if np.abs(heard).max() < 32_767:
            assert level_db(own) - level_db(heard[:samples]) == pytest.approx(below_db, abs=0.1)
        clips.add(heard[:1600].tobytes())
    assert len(clips) > 20


@pytest.mark.parametrize("kind", TAKES_FLOOR)
def test_interrupting_words_are_the_next_turn(kind: str) -> None:
    trace = made(sessions=10, **NONE | {KINDS[kind]: 1.0})
    for session in trace.sessions:
        for turn, coming in zip(session.turns, session.turns[1:], strict=False):
            assert turn.microphone.event == kind and turn.microphone.event_s == coming.audio_s
            assert list(event_pcm(trace, turn)) == list(pcm_for(trace, coming))
        assert session.turns[-1].microphone.event is None


def test_rooms_and_telephones_are_heard_in_turns_and_beside_them() -> None:
    pytest.importorskip("librosa")
    clean, far = made(sessions=4), made(sessions=4, reverb_s=0.4, codec="g711", snr_db=20)
    assert clean.header.hash == far.header.hash
    for turn in turns(clean):
        assert sound(clean, turn).shape == sound(far, turn).shape
        assert not np.array_equal(sound(clean, turn), sound(far, turn))
        if turn.microphone.event:
            assert event_sound(clean, turn).shape == event_sound(far, turn).shape
            assert not np.array_equal(event_sound(clean, turn), event_sound(far, turn))


def test_the_sound_survives_the_file_and_knows_its_recordings(record: Record, tmp_path: Path) -> None:
    for index in (3, 7):
        folder = record(f"{index}.wav", index=index).parent
    trace = make_trace("duplex", {"path": str(folder), "sessions": 8}, 0)
    trace.save(tmp_path / "trace.parquet")
    loaded = Trace.load(tmp_path / "trace.parquet")
    assert recordings(loaded) == {name: folder / name for name in ("3.wav", "7.wav")}
    for turn in turns(loaded):
        assert list(pcm_for(loaded, turn)) == list(pcm_for(trace, turn))
        if turn.microphone.event:
            assert list(event_pcm(loaded, turn)) == list(event_pcm(trace, turn))


def test_sounds_that_cannot_be_had() -> None:
    trace = made(sessions=20)
    quiet = next(turn for turn in turns(trace) if turn.microphone.event is None)
    with pytest.raises(UserError, match=r"^session \d+ turn \d+ has no event; only turns with one sound so\.$"):
        event_pcm(trace, quiet)
    held = next(turn for turn in turns(trace) if turn.microphone.pause_s)
    with pytest.raises(UserError, match=r"lasts .* s and its pause .* s, so the trace was changed"):
        pcm_for(trace, dataclasses.replace(held, audio_s=99.0))
    last = trace.sessions[0].turns[-1].changed(event="interruption", event_after_s=1.0, event_s=1.0)
    with pytest.raises(UserError, match=r"is the last, so nothing follows its interruption; make the trace again"):
        event_pcm(trace, last)


def test_every_kind_is_drawn() -> None:
    assert set(KINDS) == set(EVENTS) == set(made().columns()["event"]) - {""}
