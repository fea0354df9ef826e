"""The scorer of the quality probes: keywords as whole words, by segment of a session or by frame."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("soundfile", reason="needs the extra audio")

from harness.metrics.metric import Metric
from harness.metrics.quality import QUALITY_DEFINITIONS, Quality, decoder_of, judge, shares, states, summarise_quality
from tests.engines.omni_checkpoint import ID, write_tokenizer
from tests.metrics.event_log import are
from tests.workloads.test_questions import CARDS, LAST, write
from workloads.audio.question_file import read_questions
from workloads.errors import UserError
from workloads.generators.questions import QuestionParams, assigned_questions
from workloads.registry import make_trace
from workloads.trace import Trace

FREE = {"sessions": 4, "segments": 5, "segment_s": 4.0}


def decode(ids) -> str:
    return bytes(ids).decode()


def judged(trace: Trace, said: list[tuple[int, int, str]]) -> Quality:
    """`said`: session, frame and text."""
    return judge(trace, [(session, frame, list(text.encode())) for session, frame, text in said], decode)


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
def test_words_around_a_keyword_do_not_matter(before: str, after: str, keyword: str):
    assert states(f"{before} {keyword} {after}", ["nothing", keyword])


def test_a_session_answers_a_segment_with_all_that_it_says_in_it(folder: Path):
    """A segment has two frames. Session 0 always answers, half a word in each; 1 always gives its first answer;
    2 is silent; 3 answers the question before."""
    free, said = trace(folder), []
    words = [[question.keywords[0] for question in session] for session in expected(free)]
    for segment in range(5):
        first, second, word = 2 * segment, 2 * segment + 1, words[0][segment]
        said += [(0, first, word[:2]), (1, first, words[1][0]), (3, first, words[3][max(0, segment - 1)])]
        said += [(0, second, word[2:])]
    quality = judged(free, said)
    answers = quality.answers.to_pandas().pivot(index="session", columns="segment", values="answered")
    assert answers.to_numpy().tolist() == [
        [True, True, True, True, True],
        [True, False, False, False, True],  # the last segment asks the first question again
        [False, False, False, False, False],
        [True, False, False, False, False],
    ]
    assert quality.answers["kind"].to_pylist()[:5] == ["question"] * 3 + ["fresh", "recall"]
    metrics = summed(free, quality)
    assert list(metrics) == list(QUALITY_DEFINITIONS)
    assert metrics["answered_mid_call"].value == metrics["answered_mid_end"].value == 0.25
    assert (metrics["answered_fresh"].value, metrics["answered_recall"].value) == (0.25, 0.5)
    assert metrics["frames_right"].value is None
    segments, share = shares(quality.answers.to_pandas())
    assert (segments.tolist(), share.tolist()) == ([0, 1, 2, 3, 4], [0.75, 0.25, 0.25, 0.25, 0.5])


def test_in_turns_each_frame_is_judged_and_silence_is_missing(folder: Path):
    """Four sessions of four frames: 0 is right once and wrong once, 1 is right four times, 2 is wrong once."""
    turns = trace(folder, mode="turns", segments=1, segment_s=8.0)
    words = [questions[0].keywords[0] for questions in expected(turns)]
    said = [(0, 0, words[0]), (0, 1, "no"), (0, 1, " idea"), (2, 2, "hm")]
    quality = judged(turns, said + [(1, frame, words[1]) for frame in range(4)])
    are(summed(turns, quality), frames_right=(5 / 7, 7, 9), answer_stated=(0.5, 4, 0), answered_mid_call=(None, 0, 0))
    second = {"session": 0, "frame": 1, "tokens": list(b"no idea"), "text": "no idea", "right": False}
    assert quality.outputs.to_pylist()[1] == second


def test_nothing_said_is_no_answer(folder: Path):
    free, turns = trace(folder), trace(folder, mode="turns")
    assert summed(free, judged(free, []))["answered_mid_call"].value == 0.0
    are(summed(turns, judged(turns, [])), frames_right=(None, 0, len(turns)))


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
