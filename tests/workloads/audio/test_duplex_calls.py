import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.golden.pinned import check_trace
from tests.workloads.audio.conftest import Record, known
from workloads.audio import pauses, phrases
from workloads.audio.phrases import Phrases, voice_phrases
from workloads.audio.voice import sentences
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR
from workloads.errors import UserError
from workloads.generators import duplex
from workloads.generators.content import event_pcm, pcm_for, recordings, tells_what_is_said
from workloads.registry import make_trace, serves
from workloads.trace import Trace, Turn

KINDS = {"interruption": "p", "correction": "corrections", "backchannel": "backchannels"}
KINDS |= {kind: kind for kind in ("side_speech", "background_speech", "noise")}
"""Kind of event -> the parameter of its share."""
NONE = dict.fromkeys([*KINDS.values(), "hesitations"], 0.0)
RATE = 16_000


def made(**params: object) -> Trace:
    return make_trace("duplex", {"sessions": 200, **params}, 0)


def turns(trace: Trace) -> list[Turn]:
    return [turn for session in trace.sessions for turn in session.turns]


def sound(trace: Trace, turn: Turn, rate: int = RATE, of: Callable[..., Iterator[bytes]] = pcm_for) -> np.ndarray:
    packets = list(of(trace, turn, rate))
    assert packets == list(of(trace, turn, rate))
    assert {len(packet) for packet in packets} == {rate // 25}
    return np.frombuffer(b"".join(packets), "<i2").astype(float)


def event_sound(trace: Trace, turn: Turn) -> np.ndarray:
    return sound(trace, turn, of=event_pcm)


def level_db(sound: np.ndarray) -> float:
    return 10 * np.log10(np.mean(sound**2))


def test_golden_trace() -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    trace = make_trace("duplex", {}, 0)
    check_trace("trace_duplex", trace)
    assert serves(trace) == "duplex" and tells_what_is_said(trace)
    assert set(KINDS) == set(EVENTS) == set(made().columns()["event"]) - {""}


@pytest.mark.parametrize("kind", KINDS)
def test_more_of_one_kind_changes_nothing_else(kind: str) -> None:
    """But that a turn has one event: what comes later in the order gives way to it."""
    few, many = (pd.DataFrame(made(**{KINDS[kind]: share}).columns()) for share in (0.1, 0.5))
    own = ["event", "event_after_s", "event_s", "barge_in_after_s"]
    assert few.drop(columns=own).equals(many.drop(columns=own))
    changed = few["event"] != many["event"]
    assert set(many["event"][changed]) == {kind}
    assert set(few["event"][changed]) - {""} <= set(duplex.PRECEDENCE[duplex.PRECEDENCE.index(kind) + 1 :])
    assert few.loc[~changed, own[:3]].equals(many.loc[~changed, own[:3]])


def only(kind: str) -> tuple[Trace, pd.DataFrame, pd.DataFrame]:
    """A trace with this kind in 30 % of turns and no other; its turns, and those with the event."""
    trace = made(sessions=1500, **NONE | {KINDS[kind]: 0.3})
    rows = pd.DataFrame(trace.columns())
    rows["next_s"] = rows.groupby("session")["audio_s"].shift(-1)
    return trace, rows, rows.loc[rows["event"] == kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_event_has_its_share_of_turns(kind: str) -> None:
    trace, rows, own = only(kind)
    assert set(rows["event"]) == {"", kind}
    possible = rows.loc[rows["next_s"].notna()] if kind in TAKES_FLOOR else rows
    assert len(own) / len(possible) == pytest.approx(0.3, abs=0.02)
    assert f"{kind}: {len(own)} of {len(rows)} turns" in trace.header.notes


@pytest.mark.parametrize("kind", TAKES_FLOOR)
def test_words_that_take_the_floor_are_the_next_turn(kind: str) -> None:
    _, _, own = only(kind)
    assert own["event_s"].tolist() == own["next_s"].tolist()
    if kind == "correction":
        assert own["event_after_s"].between(0.3, 2.0).all()
    else:
        assert (own["event_after_s"] / own["reply_audio_s"]).between(0.1 - 1e-5, 0.9 + 1e-5).all()


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - set(TAKES_FLOOR)))
def test_other_sounds_have_their_lengths_and_end_with_the_reply_where_they_fit(kind: str) -> None:
    _, _, own = only(kind)
    median_s, _, shortest_s, longest_s = duplex.LENGTHS[kind]
    assert np.median(own["event_s"]) == pytest.approx(median_s, rel=0.1)
    assert own["event_s"].between(shortest_s, longest_s).all()
    fits = own.loc[own["event_s"] <= own["reply_audio_s"]]
    left_s = np.asarray(fits["reply_audio_s"] - fits["event_after_s"] - fits["event_s"], float)
    assert (left_s >= -1e-6).all()


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
        times_s = (turn.microphone.pause_after_s, turn.microphone.pause_s, turn.audio_s)
        begin, length, whole = (round(known(each) * rate) for each in times_s)
        assert not heard[begin : begin + length].any()
        without = np.concatenate([heard[:begin], heard[begin + length : whole]])
        assert np.array_equal(without, plain[: len(without)]) and len(without) == whole - length


def test_the_voice_hesitates_where_its_sentences_are_unfinished() -> None:
    for sentence in sentences():
        (said,) = voice_phrases(sentence)
        assert said.seconds == pytest.approx(sentence.seconds)
        assert set(said.places()) <= set(sentence.places_s)
        assert all(phrases.EDGE_S <= at_s <= said.seconds - phrases.EDGE_S for at_s in said.places())
    assert Phrases(sentences()[0], ((0.0, 0.5),)).places() == []


@pytest.mark.parametrize(
    ("kind", "param", "below_db"),
    [
        ("backchannel", {}, 0.0),
        ("side_speech", {"side_db": 9.0}, 9.0),
        ("background_speech", {"background_db": 20.0}, 20.0),
        ("noise", {"noise_db": 3.0}, 3.0),
    ],
)
def test_a_sound_during_a_reply_has_its_length_and_level(kind: str, param: dict, below_db: float) -> None:
    trace = made(sessions=30, **NONE | {KINDS[kind]: 1.0} | param)
    clips: set[bytes] = set()
    for turn in turns(trace):
        heard, samples = event_sound(trace, turn), round(known(turn.microphone.event_s) * RATE)
        assert len(heard) - samples in range(320) and not heard[samples:].any()
        there, edge = np.flatnonzero(heard), (0.005 if kind == "noise" else 0.03) * RATE  # words begin softly
        assert there[0] <= edge and there[-1] >= samples - edge
        own = sound(trace, turn)[: round(known(turn.audio_s) * RATE)]
        if np.abs(heard).max() < 32_767:
            assert level_db(own) - level_db(heard[:samples]) == pytest.approx(below_db, abs=0.1)
        clips.add(heard[:1600].tobytes())
    assert len(clips) > 20


def test_rooms_and_telephones_change_turns_and_other_sounds() -> None:
    pytest.importorskip("librosa")
    clean, far = made(sessions=4), made(sessions=4, reverb_s=0.4, codec="g711", snr_db=20)
    assert clean.header.hash == far.header.hash
    pairs = [(turn, each) for turn in turns(clean) for each in (sound, event_sound)]
    for turn, heard in pairs:
        if heard is sound or turn.microphone.event:
            assert heard(clean, turn).shape == heard(far, turn).shape
            assert not np.array_equal(heard(clean, turn), heard(far, turn))


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


def test_sounds_that_cannot_be_read_are_refused() -> None:
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
