"""The scorer of the quality probes: keywords as whole words, by session and segment, and by frame."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("soundfile", reason="needs the extra audio")

from harness.metrics.metric import Metric
from harness.metrics.quality import QUALITY_DEFINITIONS, Quality, decoder_of, judge, shares, states, summarise_quality
from tests.engines.omni_checkpoint import ID, write_tokenizer
from tests.workloads.test_questions import CARDS, LAST, write
from workloads.audio.question_file import read_questions
from workloads.errors import UserError
from workloads.generators.questions import QuestionParams, assigned_questions
from workloads.registry import make_trace
from workloads.trace import Trace

FREE = {"sessions": 4, "segments": 5, "segment_s": 4.0}
FRAMES = 10


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(ids) -> str:
    return bytes(ids).decode()


def summed(trace: Trace, quality: Quality) -> dict[str, Metric]:
    return summarise_quality(trace, quality.outputs.to_pandas(), quality.answers.to_pandas())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("questions"), CARDS + LAST)


def trace(folder: Path, **changes) -> Trace:
    return make_trace("questions", {"questions": str(folder), **FREE, **changes}, 0)


def expected(trace: Trace):
    params = QuestionParams.model_validate(trace.header.params)
    return assigned_questions(params, trace.header.seed, read_questions(params.questions))


@pytest.mark.parametrize(
    ("text", "keywords", "right"),
    [
        ("It is PARIS, I think.", ["paris"], True),
        ("Paris's best", ["Paris"], True),
        ("São Paulo!", ["sao paulo"], True),
        ("comparison", ["paris"], False),
        ("the network", ["two"], False),
        ("4 or five", ["four", "4"], True),
        ("new  york", ["New-York"], True),
        ("", ["a"], False),
    ],
)
def test_a_keyword_counts_as_whole_words_however_written(text: str, keywords: list[str], right: bool):
    assert states(text, keywords) is right


@given(st.text(), st.text(), st.sampled_from(["queen", "five hearts"]))
def test_what_else_is_said_does_not_matter(before: str, after: str, keyword: str):
    assert states(f"{before} {keyword} {after}", ["nothing", keyword])


def test_a_session_answers_a_segment_with_all_that_it_says_in_it(folder: Path):
    """Session 0 always answers, in two halves of a word; 1 always says what it was first asked; 2 is silent; 3 answers
    the question before."""
    free, frame_answers = trace(folder), []
    words = [[question.keywords[0] for question in session] for session in expected(free)]
    for frame in range(FRAMES):
        segment, second = divmod(frame, 2)
        word = words[0][segment]
        half = word[len(word) // 2 :] if second else word[: len(word) // 2]
        said = {0: half, 1: f"well, {words[1][0]} ", 3: f" {words[3][max(0, segment - 1)]} "}
        frame_answers += [(session, frame, encode(text)) for session, text in said.items()]
    quality = judge(free, frame_answers, decode)
    answers = quality.answers.to_pandas().pivot(index="session", columns="segment", values="answered")
    only_the_first = [True, False, False, False, False]
    assert answers.to_numpy().tolist() == [[True] * 5, [*only_the_first[:4], True], [False] * 5, only_the_first]
    assert quality.answers["kind"].to_pylist()[:5] == ["question"] * 3 + ["fresh", "recall"]
    values = {name: metric.value for name, metric in summed(free, quality).items()}
    assert list(values) == list(QUALITY_DEFINITIONS)
    assert values["answered_mid_call"] == values["answered_mid_low"] == values["answered_mid_end"] == 0.25
    assert (values["answered_fresh"], values["answered_recall"]) == (0.25, 0.5)
    assert values["frames_right"] is None and values["answer_stated"] is None
    segments, share = shares(quality.answers.to_pandas())
    assert segments.tolist() == [0, 1, 2, 3, 4] and share.tolist() == [0.75, 0.25, 0.25, 0.25, 0.5]
    assert not any(row["right"] for row in quality.outputs.to_pylist() if row["session"] == 0)


def test_in_turns_each_frame_is_judged_and_silence_is_missing(folder: Path):
    turns = trace(folder, mode="turns", segments=1, segment_s=8.0)
    words = [questions[0].keywords[0] for questions in expected(turns)]
    said = [(0, 0, words[0]), (0, 1, "no"), (0, 1, " idea"), (2, 2, "hm")]
    said += [(1, frame, words[1]) for frame in range(4)]
    quality = judge(turns, [(session, frame, encode(text)) for session, frame, text in said], decode)
    metrics = summed(turns, quality)
    assert metrics["answer_stated"].value == 0.5
    right = metrics["frames_right"]
    assert (right.value, right.n, right.missing) == (pytest.approx(5 / 7), 7, 9)
    second = {"session": 0, "frame": 1, "tokens": encode("no idea"), "text": "no idea", "right": False}
    assert quality.outputs.to_pylist()[1] == second
    assert metrics["answered_mid_call"].value is None


def test_nothing_said_is_no_answer(folder: Path):
    free, turns = trace(folder), trace(folder, mode="turns")
    assert summed(free, judge(free, [], decode))["answered_mid_call"].value == 0.0
    metric = summed(turns, judge(turns, [], decode))["frames_right"]
    assert metric.value is None and metric.missing == len(trace(folder, mode="turns"))


def test_tokens_become_text_with_the_tokenizer_of_the_checkpoint(tmp_path: Path):
    pytest.importorskip("transformers")
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_omni_moe"}))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "Ça va: 4 dés"
    ids = tokenizer.encode(text)
    assert decoder_of(str(tmp_path))([ID["<|im_start|>"], *ids, ID["<|im_end|>"]]) == text
    with pytest.raises(UserError, match=r"has no tokenizer that can be read .*; give the folder as it was published"):
        decoder_of(str(tmp_path / "nothing"))
