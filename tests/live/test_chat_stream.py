"""The reader of chat completions: events by the standard, and replies as servers mean them, however they are cut."""

from typing import Any

import pytest

from harness.live.endpoints.dialects.chat import ChatReply, EventStream
from tests.live.scripted import DONE, event

CHANNELS: dict[str, Any] = {
    "content": "word",
    "reasoning": "hm",
    "reasoning_content": "hm",
    "refusal": "no",
    "tool_calls": [{"index": 0, "id": "x", "function": {"name": "look", "arguments": ""}}],
    "function_call": {"name": "look", "arguments": ""},
    "audio": {"id": "x", "data": "AAAA"},
}


def chunk(finish: Any = None, usage: int | None = None, **delta: Any) -> dict[str, Any]:
    stated = {} if usage is None else {"usage": {"completion_tokens": usage}}
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **stated}


def usage(tokens: Any, **details: Any) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": tokens, **details}})


ROLE, WORD, STOP = event(chunk(role="assistant", content="")), event(chunk(content="a")), event(chunk("stop"))


def heard(*pieces: bytes) -> tuple[list[int], str | None, int | None]:
    """The tokens of each message, how the reply ended, and its tokens as stated."""
    reply = ChatReply()
    messages = [tokens for piece in pieces for tokens in reply.read(piece)] + reply.end()
    return messages, reply.over, reply.delivered


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata:b\r\n\r\ndata:  c\r\r", [(b"", b"a"), (b"", b"b"), (b"", b" c")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data: a\ndata\ndata: b\n\n", [(b"", b"a\n\nb")]),
        (b": ping\n\nid: 1\nretry: 5\ndata: a\nevent: error\n\ndata: b\n\n", [(b"error", b"a"), (b"", b"b")]),
        (b"event: error\n\n", [(b"error", b"")]),
        (b"data: a", [(b"", b"a")]),
        (b"\n\n\r\n", []),
    ],
)
def test_events_are_those_of_the_standard_wherever_they_are_cut(stream: bytes, events: list[tuple[bytes, bytes]]):
    for cut in range(len(stream) + 1):
        reader = EventStream()
        assert [*reader.feed(stream[:cut]), *reader.feed(stream[cut:]), *reader.end()] == events


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (WORD + STOP, ([1], "", None)),
        (WORD + DONE, ([1], "", None)),
        (WORD + b"data: [DONE]", ([1], "", None)),
        (WORD + STOP + usage(7) + DONE, ([1], "", 7)),
        (WORD + STOP + event({"choices": None, "usage": {"completion_tokens": "8"}}), ([1], "", 8)),
        (WORD + STOP + event({"choices": [], "usage": None}) + usage(None), ([1], "", None)),
        (WORD + STOP + usage(9, completion_tokens_details={"reasoning_tokens": 6}), ([1], "", 3)),
        (event(chunk(content="a", usage=2)) + event(chunk(content="b", usage=5)) + DONE, ([2, 3], "", 5)),
        (event(chunk("length", content="a", usage=3)), ([3], "", 3)),
        (event(chunk(content=[{"type": "text", "text": "a"}])) + DONE, ([1], "", None)),
        (event({"choices": [{"text": "a", "finish_reason": "stop"}]}), ([1], "", None)),
        (event({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}), ([1], "", None)),
        (b'data: {"choices":[{"delta":{"content":"\\ud83d"}}],"x":-Infinity}\n\n' + STOP, ([1], "", None)),
        (b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n' + STOP, ([1], "", None)),
        (WORD, ([1], "cut short", None)),
        (WORD + b'data: {"choi', ([1], "cut short", None)),
        (b"", ([], "no output", None)),
        (DONE, ([], "no output", None)),
        (ROLE + STOP + usage(3) + DONE, ([], "no output", 3)),
        (usage(3) + DONE, ([], "no output", 3)),
        (ROLE, ([], "cut short", None)),
        (b"hello", ([], "no stream of events", None)),
        (b'{"error": {"code": 500}}', ([], "error: 500", None)),
        (WORD + b"data: oh no\n\n", ([1], "garbage", None)),
        (WORD + event({"error": {"message": "died", "type": "x", "code": 500}}) + DONE, ([1], "error: 500", None)),
        (event({"error": True, "message": "oh"}), ([], "error: oh", None)),
        (event({"object": "error", "message": "died", "code": None, "type": "T"}), ([], "error: T", None)),
        (event({"message": "died"}), ([], "error: died", None)),
        (event({"detail": [{"loc": ["body"], "msg": "wrong"}]}), ([], "error: wrong", None)),
        (event("died"), ([], "error: died", None)),
        (event({"choices": [{"delta": {}, "error": {"code": 502}}]}), ([], "error: 502", None)),
        (WORD + b'event: error\ndata: {"message": "died"}\n\n' + DONE, ([1], "error: died", None)),
        (WORD + b"data: died\nevent: error\n\n", ([1], "error: died", None)),
        (WORD + event(chunk("abort")) + usage(1) + DONE, ([1], "finish reason: abort", 1)),
        (WORD + event(chunk({"type": "abort", "message": "full"})), ([1], "finish reason: abort", None)),
        (WORD + event(chunk("melted")), ([1], "finish reason: melted", None)),
        (WORD + STOP + event({"error": {"code": 500}}), ([1], "error: 500", None)),
        (WORD + STOP + WORD, ([1], "output after the finish reason", None)),
    ],
)
def test_a_reply_is_what_its_server_means(stream: bytes, expected: tuple[list[int], str, int | None]):
    assert heard(stream) == heard(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_channel_is_output(channel: str):
    piece = event(chunk(**{"content": None, channel: CHANNELS[channel]}))
    assert heard(ROLE, piece, STOP) == ([1], "", None)


def test_the_halves_of_a_character_are_joined():
    reply = ChatReply()
    for half in (b"\\ud83d", b"\\ude00", b"!"):
        reply.read(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % half)
    assert reply.content == "\N{GRINNING FACE}!"
