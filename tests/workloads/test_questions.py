import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("soundfile", reason="needs the extra audio")

from workloads.audio.question_file import read_questions
from workloads.errors import UserError
from workloads.generators.content import pcm_for, tells_what_is_said
from workloads.generators.questions import END, QuestionParams, assigned_questions, segment_of, streams, words
from workloads.registry import make_trace, serves

RATE = 16_000
CARDS = [
    ("ten.wav", ["ten", "10"], None),
    ("queen.wav", ["queen"], None),
    ("seven.wav", ["seven", "7"], None),
    ("five.wav", ["five"], None),
]
LAST = [("eight.wav", ["eight"], "fresh"), ("first.wav", None, "recall")]
Write = Callable[..., Path]


def write(folder: Path, lines: list) -> Path:
    """Recordings of 1.1 to 1.6 s of noise, each its own, and the file that says what they ask."""
    import soundfile

    folder.mkdir(exist_ok=True)
    rows = []
    for place, (name, keywords, kind) in enumerate(lines):
        noise = np.random.default_rng(place).uniform(-0.3, 0.3, RATE + 1600 * (place + 1))
        soundfile.write(folder / name, noise, RATE)
        rows.append({"file": name} | ({"keywords": keywords} if keywords else {}) | ({"kind": kind} if kind else {}))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("questions"), CARDS + LAST)


def params(folder: Path, **changes) -> QuestionParams:
    short = {"sessions": 6, "segments": 5, "segment_s": 4.0}
    return QuestionParams.model_validate({"questions": folder, **short, **changes})


@settings(max_examples=25)
@given(sessions=st.integers(1, 12), segments=st.integers(3, 9), seed=st.integers(0, 5))
def test_questions_rotate_and_the_call_ends_with_a_fresh_one_and_the_recall(
    folder: Path, sessions: int, segments: int, seed: int
):
    heard = assigned_questions(params(folder, sessions=sessions, segments=segments), seed, read_questions(folder))
    assert [len(questions) for questions in heard] == [segments] * sessions
    for questions in heard:
        *rotating, fresh, recall = questions
        assert len({q.clip.name for q in rotating[:4]}) == min(4, len(rotating))
        assert (fresh.kind, recall.kind) == ("fresh", "recall")
        assert recall.keywords == rotating[0].keywords
    for at in range(segments - 2):
        at_once = [questions[at].clip.name for questions in heard[:4]]
        assert len(set(at_once)) == len(at_once)


@settings(max_examples=10)
@given(sessions=st.integers(1, 12), frame_s=st.sampled_from([0.5, 1.0, 2.0]))
def test_a_segment_repeats_its_recording_and_no_two_sessions_sound_alike(folder: Path, sessions: int, frame_s: float):
    chosen = params(folder, sessions=sessions, frame_s=frame_s)
    sounds, heard = streams(chosen, 0), assigned_questions(chosen, 0, read_questions(folder))
    size = round(chosen.segment_s * RATE)
    for sound, questions in zip(sounds, heard, strict=True):
        for segment, question in enumerate(questions):
            clip = question.clip.pcm(RATE)
            part = sound.pcm(segment * size, size)
            starts = [at for at in range(0, len(clip), 320) if np.array_equal(part[:320], clip[at : at + 320])]
            assert any(np.array_equal(part, np.resize(np.roll(clip, -at), size)) for at in starts)
    first = {sound.pcm(0, round(frame_s * RATE)).tobytes() for sound in sounds}
    assert len(first) == sessions


def test_a_trace_has_a_row_for_each_frame_and_tells_its_sound(folder: Path):
    trace = make_trace("questions", {**params(folder).model_dump(), "tokens_per_frame": 7}, 3)
    assert serves(trace) == "frames" and tells_what_is_said(trace)
    assert [len(session.turns) for session in trace.sessions] == [10] * 6
    sounds = streams(params(folder), 3)
    for session in trace.sessions:
        assert {turn.output_tokens for turn in session.turns} == {7}
        for turn in session.turns[::4]:
            said = np.frombuffer(b"".join(pcm_for(trace, turn, RATE)), "<i2")
            assert np.array_equal(said, sounds[session.id].pcm(turn.turn * 2 * RATE, 2 * RATE))


def test_a_call_in_turns_has_one_question_and_a_frame_belongs_to_the_segment_it_begins_in(folder: Path):
    chosen = params(folder, mode="turns", segments=1, segment_s=75.0)
    assert {len(questions) for questions in assigned_questions(chosen, 0, read_questions(folder))} == {1}
    assert len(make_trace("questions", chosen.model_dump(), 0).sessions[0].turns) == 37
    assert segment_of(params(folder, segment_s=3.0), np.arange(6)).tolist() == [0, 0, 1, 2, 2, 3]


def test_mode_turns_repeats_the_instruction_and_ends_the_reply(folder: Path):
    free, turns = words(params(folder)), words(params(folder, mode="turns"))
    assert free.first == turns.first and free.first[1].startswith(params(folder).instruction)
    assert free.later == ("", "") and free.end is None
    assert turns.later[0].startswith(END) and turns.later[1] == turns.first[1] and turns.end == END


def test_other_keywords_are_another_trace(folder: Path, tmp_path: Path):
    other = write(tmp_path / "other", [("ten.wav", ["ten"], None), *CARDS[1:], *LAST])
    ours, same, theirs = (make_trace("questions", params(place).model_dump(), 0) for place in (folder, folder, other))
    assert ours == same and ours.header.hash != theirs.header.hash


@pytest.mark.parametrize(
    ("lines", "changes", "sentence"),
    [
        (CARDS[:1], {}, "no question of kind 'fresh', which mode free asks at the end; add one, or set mode=turns"),
        ([*CARDS, LAST[0]], {}, "no question of kind 'recall'"),
        (LAST, {}, "has no question of kind 'question'; add one"),
        ([("a.wav", None, None)], {}, "line 1, column 'keywords': None is not a list of words"),
        ([("a.wav", ["?"], None)], {}, "is not a list of words that an answer states one of"),
        ([*CARDS, ("a.wav", ["x"], "recall")], {}, "line 5, column 'keywords': .* must be left out"),
        ([("a.wav", ["x"], "odd")], {}, "'odd' is none of question, fresh, recall"),
        (CARDS[:1], {"mode": "turns", "sessions": 56}, "56 sessions begin with ten.wav, which has fewer places"),
    ],
)
def test_a_folder_without_the_needed_questions_is_refused(tmp_path: Path, lines, changes, sentence: str):
    folder = write(tmp_path / "questions", lines)
    with pytest.raises(UserError, match=sentence):
        make_trace("questions", params(folder, **changes).model_dump(), 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, r'has no questions\.jsonl; write one line .* \{"file": '),
        ({"segments": 2}, "segments must be 3 or more in mode free"),
        ({"segments": 1, "segment_s": 1, "mode": "turns"}, "hold no frame of 2 s"),
    ],
)
def test_a_folder_without_the_file_and_too_few_segments_are_refused(tmp_path: Path, changes, sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_trace("questions", {"questions": str(tmp_path), **changes}, 0)
