"""Conversations of a file: which messages are had, their lengths, and the text that a live client sends."""

import json
from pathlib import Path
from typing import Any

import pytest

from workloads.errors import UserError
from workloads.files.sharegpt_file import read_chats
from workloads.generators.conversations import UNKNOWN_REPLY, texts_of
from workloads.registry import make_trace
from workloads.trace import Trace

PARTS = [{"type": "text", "text": "what is on this picture"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
CHATS = [
    {
        "conversations": [
            {"from": "system", "value": "be brief"},
            {"from": "gpt", "value": "the end of another piece"},
            {"from": "human", "value": "not answered"},
            {"from": "human", "value": "hello there"},
            {"from": "gpt", "value": "hello to you as well my friend"},
            {"from": "tool", "value": "42"},
            {"from": "human", "value": "good bye"},
        ]
    },
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
    assert {len(session.turns) for session in trace.sessions} == {1, 2}
    for session in trace.sessions:
        assert [turn.think_s for turn in session.turns] == [None, 3.0][: len(session.turns)]
        for turn in session.turns:
            assert turn.content is not None
            exchange = texts[turn.content]
            assert turn.input_tokens == exchange.prompt_tokens
            assert turn.output_tokens == (exchange.reply_tokens or UNKNOWN_REPLY)
    assert sorted(texts) == [0, 1, 2]


def test_all_conversations_come_before_one_comes_again(tmp_path: Path) -> None:
    path = chats(tmp_path, [{"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(7)])
    trace = made(path, conversations=21)
    content = trace.columns()["content"].astype(int)
    assert all(sorted(content[i : i + 7]) == [*range(7)] for i in (0, 7, 14))
    assert any("21 conversations of 7" in note for note in trace.header.notes)
    assert made(path, conversations=7, seed=1).columns()["content"].tolist() != content[:7].tolist()


def test_replies_and_turns_have_limits(tmp_path: Path) -> None:
    trace = made(chats(tmp_path), conversations=2, turns=1, max_reply_tokens=2)
    assert len(trace) == 2 and set(trace.columns()["output_tokens"]) == {2}


def test_vllms_custom_file_says_how_long_replies_are(tmp_path: Path) -> None:
    path = tmp_path / "custom.jsonl"
    path.write_text('{"prompt": "tell me a story", "output_tokens": 77}\n')
    (turn,) = made(path, conversations=1).sessions[0].turns
    assert turn.output_tokens == 77 and texts_of(made(path, conversations=1))[0].said == (("user", "tell me a story"),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"conversations": [{"from": "gpt", "value": "hello"}]}], "no conversation has a question"),
        ([{"conversations": [{"from": "human"}]}], "entry 1, column 'conversations'"),
        ([{"text": "hello"}], "has no column 'conversations'"),
    ],
)
def test_a_file_without_questions_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        made(chats(tmp_path, content))


def test_workload_sharegpt_says_that_it_leaves_system_prompts_out(tmp_path: Path) -> None:
    talk = [{"from": name, "value": "be brief"} for name in ("system", "human", "gpt")]
    trace = make_trace("sharegpt", {"path": str(chats(tmp_path, [{"conversations": talk}])), "requests": 1}, 0)
    assert any(note.startswith("1 of 3 messages left out: system prompt") for note in trace.header.notes)
