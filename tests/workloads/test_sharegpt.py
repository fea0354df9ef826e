"""Conversations of ShareGPT: its layouts, what is left out of them, and its two halves."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.builders import refused
from workloads.registry import make_trace


def test_sharegpt_short_and_long_meet_at_the_median() -> None:
    def replies(kind: str) -> np.ndarray:
        params = {"kind": kind, "modality": "text", "reply": "text", "requests": 4000}
        return make_trace("sharegpt", params, 0).columns()["output_tokens"]

    assert replies("short").max() <= 300 <= replies("long").min()
    assert np.median(replies("all")) == pytest.approx(300, rel=0.05)


def test_sharegpt_layouts_agree(tmp_path: Path) -> None:
    talk = [
        ("gpt", "x" * 8),
        ("human", "a" * 40),
        ("gpt", "b" * 400),
        ("human", "c"),
        ("human", "d" * 4),
        ("gpt", "e" * 8),
    ]
    v3 = [{"id": "1", "conversations": [{"from": role, "value": text} for role, text in talk]}]
    share_ai = {
        "conversation_id": 1,
        "conversation": [{"human": "a" * 40, "assistant": "b" * 400}, {"human": "d" * 4, "assistant": "e" * 8}],
    }
    chat = [{"role": {"gpt": "assistant", "human": "user"}[role], "content": text} for role, text in talk]
    custom = [{"prompt": "a" * 40, "output_tokens": 100}, {"prompt": "d" * 4, "output_tokens": 2}]
    rows = [f"1,{i},{role},{len(text)},1" for i, (role, text) in enumerate(talk)]
    (tmp_path / "v3.json").write_text(json.dumps(v3))
    (tmp_path / "share_ai.jsonl").write_text(json.dumps(share_ai) + "\n")
    for column in ("conversations", "conversation", "messages"):
        (tmp_path / f"{column}.json").write_text(json.dumps([{column: chat}]))
    (tmp_path / "custom.jsonl").write_text("\n".join(map(json.dumps, custom)))
    (tmp_path / "lengths.csv").write_text("\n".join(["conv_id,msg_index,from,n_chars,n_words", *rows]))
    hashes = set()
    without_dirt = ("share_ai.jsonl", "custom.jsonl")
    chats = ("conversations.json", "conversation.json", "messages.json")
    for name in ("v3.json", "lengths.csv", *chats, *without_dirt):
        trace = make_trace("sharegpt", {"path": str(tmp_path / name), "modality": "text", "reply": "text"}, 0)
        pairs = zip(trace.columns()["input_tokens"], trace.columns()["output_tokens"], strict=True)
        assert set(pairs) == {(10, 100), (1, 2)}
        hashes.add(trace.header.hash)
        left_out = [note for note in trace.header.notes if "left out" in note]
        kinds = [
            "1 of 6 messages left out: answer at the start",
            "1 of 6 messages left out: question without an answer",
        ]
        assert left_out == ([] if name in without_dirt else kinds)
    assert len(hashes) == 1


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
def test_conversations_that_cannot_be_read(tmp_path: Path, row: dict, sentence: str) -> None:
    (tmp_path / "talk.jsonl").write_text(json.dumps(row))
    with refused(sentence):
        make_trace("sharegpt", {"path": str(tmp_path / "talk.jsonl")}, 0)
