import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import refused
from workloads.files.sharegpt_file import read_chats
from workloads.generators.conversations import UNKNOWN_REPLY, texts_of
from workloads.registry import make_trace
from workloads.trace import Trace

PARTS = [{"type": "text", "text": "what is on this picture"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
TALK = [
    ("system", "be brief"),
    ("gpt", "the end of another piece"),
    ("human", "not answered"),
    ("human", "hello there"),
    ("gpt", "hello to you as well my friend"),
    ("tool", "42"),
    ("human", "good bye"),
]
CHATS = [
    {"conversations": [{"from": who, "value": text} for who, text in TALK]},
    {"conversations": [{"role": "user", "content": PARTS}, {"role": "assistant", "content": "a cat"}]},
]


def chats(folder: Path, content: Any = CHATS) -> Path:
    path = folder / "chats.json"
    path.write_text(json.dumps(content))
    return path


def made(path: Path, seed: int = 0, **params: Any) -> Trace:
    return make_trace("conversations", {"path": str(path), **params}, seed)


def test_a_conversation_is_its_system_prompt_and_its_questions_with_their_text(tmp_path: Path) -> None:
    notes: list[str] = []
    talk, picture = read_chats(chats(tmp_path), notes)
    assert [each.said for each in talk] == [(("system", "be brief"), ("user", "hello there")), (("user", "good bye"),)]
    assert [each.reply for each in talk] == ["hello to you as well my friend", None]
    assert (picture[0].said, picture[0].reply) == ((("user", PARTS),), "a cat")
    assert sorted(notes) == [
        "1 messages left out: answer at the start",
        "1 messages left out: question without an answer",
        "1 messages left out: said by neither human nor model",
    ]


def test_a_trace_has_the_lengths_of_the_text_that_its_turns_send(tmp_path: Path) -> None:
    trace = made(chats(tmp_path), conversations=2, think_s=3.0)
    texts = texts_of(trace)
    assert sorted(texts) == [0, 1, 2] and {len(session.turns) for session in trace.sessions} == {1, 2}
    for turn in (turn for session in trace.sessions for turn in session.turns):
        assert turn.content is not None
        exchange = texts[turn.content]
        assert turn.think_s == (3.0 if turn.turn else None)
        assert turn.input_tokens == exchange.prompt_tokens
        assert turn.output_tokens == (exchange.reply_tokens or UNKNOWN_REPLY)


def test_every_conversation_is_played_before_one_is_repeated(tmp_path: Path) -> None:
    path = chats(tmp_path, [{"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(7)])
    trace = made(path, conversations=21)
    content = trace.columns()["content"].astype(int)
    assert all(sorted(content[i : i + 7]) == [*range(7)] for i in (0, 7, 14))
    assert any("21 conversations of 7" in note for note in trace.header.notes)
    assert made(path, conversations=7, seed=1).columns()["content"].tolist() != content[:7].tolist()


def test_turns_and_reply_tokens_have_limits(tmp_path: Path) -> None:
    trace = made(chats(tmp_path), conversations=2, turns=1, max_reply_tokens=2)
    assert len(trace) == 2 and set(trace.columns()["output_tokens"]) == {2}


def test_a_file_without_a_question_is_refused(tmp_path: Path) -> None:
    with refused("no conversation has a question"):
        made(chats(tmp_path, [{"conversations": [{"from": "gpt", "value": "hello"}]}]))


def test_workload_sharegpt_says_that_it_leaves_system_prompts_out(tmp_path: Path) -> None:
    talk = [{"from": name, "value": "be brief"} for name in ("system", "human", "gpt")]
    trace = make_trace("sharegpt", {"path": str(chats(tmp_path, [{"conversations": talk}])), "requests": 1}, 0)
    assert any(note.startswith("1 of 3 messages left out: system prompt") for note in trace.header.notes)


def test_sharegpt_short_and_long_meet_at_the_median() -> None:
    def replies(kind: str) -> np.ndarray:
        params = {"kind": kind, "modality": "text", "reply": "text", "requests": 4000}
        return make_trace("sharegpt", params, 0).columns()["output_tokens"]

    assert replies("short").max() <= 300 <= replies("long").min()
    assert np.median(replies("all")) == pytest.approx(300, rel=0.05)


TALK_OF_TWO = [("gpt", "x" * 8), ("human", "a" * 40), ("gpt", "b" * 400)]
TALK_OF_TWO += [("human", "not answered"), ("human", "d" * 4), ("gpt", "e" * 8)]
OPENAI = [{"role": {"gpt": "assistant", "human": "user"}[who], "content": text} for who, text in TALK_OF_TWO]
PAIRS = [{"human": "a" * 40, "assistant": "b" * 400}, {"human": "d" * 4, "assistant": "e" * 8}]
LAYOUTS = {
    "conversations.json": json.dumps([{"conversations": OPENAI}]),
    "conversation.json": json.dumps([{"conversation": OPENAI}]),
    "messages.json": json.dumps([{"messages": OPENAI}]),
    "v3.json": json.dumps([{"id": "1", "conversations": [{"from": who, "value": text} for who, text in TALK_OF_TWO]}]),
    "lengths.csv": "conv_id,msg_index,from,n_chars,n_words\n"
    + "\n".join(f"1,{i},{who},{len(text)},1" for i, (who, text) in enumerate(TALK_OF_TWO)),
    "share_ai.json": json.dumps({"conversation_id": 1, "conversation": PAIRS}),
    "vllm_custom.json": '{"prompt": "%s", "output_tokens": 100}\n{"prompt": "dddd", "output_tokens": 2}' % ("a" * 40),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_exchanges_are_read_in_every_layout(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LAYOUTS[name])
    trace = make_trace("sharegpt", {"path": str(tmp_path / name), "modality": "text", "reply": "text"}, 0)
    columns = trace.columns()
    exchanges = set(zip(columns["input_tokens"], columns["output_tokens"], strict=True))
    assert exchanges == {(10, 100), (1, 2)}  # 4 characters a token
    left_out = [note.partition(" left out: ")[2] for note in trace.header.notes if "left out" in note]
    has_other_messages = name not in ("share_ai.json", "vllm_custom.json")
    assert left_out == ["answer at the start", "question without an answer"] * has_other_messages


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"messages": [{"role": "user"}]}, "'messages': [{'role': 'user'}] has messages without the texts 'from' and"),
        ({"messages": "Hello"}, "'messages': 'Hello' is not a list of messages;"),
        ({"prompt": 5, "output_tokens": 3}, "'prompt': 5 is not a text;"),
        ({"prompt": "Why?", "output_tokens": "x"}, "'output_tokens': 'x' is not a number;"),
        ({"prompt": "Why?"}, "has no column 'output_tokens';"),
        ({"text": "Why?"}, "has no column 'conversations' or 'conversation' or 'messages' or 'prompt';"),
    ],
)
def test_a_row_that_is_no_conversation_is_refused(tmp_path: Path, row: dict, sentence: str) -> None:
    (tmp_path / "talk.jsonl").write_text(json.dumps(row))
    with refused(sentence):
        make_trace("sharegpt", {"path": str(tmp_path / "talk.jsonl")}, 0)
