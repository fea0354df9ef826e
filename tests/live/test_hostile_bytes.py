"""Whatever bytes a server sends: every reader returns an event or a named failure and keeps no more than its limits."""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.client.duplex_player import Player
from harness.live.endpoints.dialects import DIALECTS, chat, dialect_of, parsing
from harness.live.endpoints.dialects.audio_format import NOTHING, AudioFormat
from harness.live.endpoints.dialects.chat import ChatReply, EventStream
from harness.live.endpoints.dialects.events import Audio, Done, Event, Garbage
from harness.live.endpoints.dialects.rtvi import _field, _number
from harness.live.endpoints.dialects.synthesis import Synthesis
from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.replies import Replies, Reply
from harness.live.endpoints.target import OFFERS, TargetParams
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation
from harness.live.run import scrape
from tests.builders import altered, places
from tests.live.test_dialects import EVENTS
from workloads.audio import wav

Read = Callable[[bytes], object]
URL = "ws://127.0.0.1:1/v1/realtime"


def readers(save_audio: int | None = None) -> dict[str, Read]:
    """A fresh reader of each dialect's messages; none of them may raise."""
    about = {"model": "m", "save_audio": save_audio}
    urls = {name: "http://127.0.0.1:1/" if name in OFFERS else URL for name in DIALECTS}
    targets = [TargetParams.model_validate({"url": urls[name], "dialect": name, **about}) for name in urls]
    by_dialect: dict[str, Read] = {target.dialect: dialect_of(target).reader() for target in targets}
    by_dialect["synthesis"] = Synthesis(targets[0]).reader()
    return by_dialect


def kept(value: Any, seen: set[int] | None = None) -> int:
    """Bytes of an object and of all that it holds."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | AudioFormat) or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        size += sum(kept(each, seen) for pair in value.items() for each in pair)
    elif isinstance(value, list | tuple | set):
        size += sum(kept(each, seen) for each in value)
    elif hasattr(value, "__dict__"):
        size += kept(vars(value), seen)
    return size


WAV = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
SAMPLES = WAV + b"data\2\0\0\0ab"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that short messages reach."""
    for module, limits in (
        (chat, {"MOST_MESSAGE": 2000, "MOST_PARTS": 50, "MOST_REPLY": 10_000, "LENIENT": 500}),
        (parsing, {"LENIENT": 500, "_MOST_KEPT": 5, "_LONGEST_FORMAT": 100}),
        (wav, {"_MOST_HEADER": 2000, "_MOST_CHUNKS": 50}),
    ):
        for name, limit in limits.items():
            monkeypatch.setattr(module, name, limit)


FORMAT = {"type": "audio/pcm", "rate": 16_000, "channels": 1}
MESSAGES: list[dict[str, Any]] = [json.loads(data) for data, event in EVENTS if not isinstance(event, Garbage)]
MESSAGES += [
    {"type": "session.updated", "session": {"output_audio_format": "pcm16", "audio": {"output": {"format": FORMAT}}}},
    {"type": "response.created", "response": {"id": "r", "output_audio_format": "pcm16"}, "format": FORMAT},
    {"type": "audio.start", "format": "pcm16", "sample_rate": 24_000},
    {"label": "rtvi-ai", "type": "bot-ready", "data": {"version": "1", "config": []}},
    {"serverContent": {"modelTurn": {"parts": [{"inlineData": {"mimeType": "audio/pcm;rate=8000", "data": "AAAA"}}]}}},
    {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}},
]
"""Messages as servers send them."""
JUNK = st.sampled_from(
    [
        *("", "x" * 500, "\ud83d", '"', "é", "A=B", "AA\nAA", "audio/pcm;bits=" + "9" * 5000),
        *(0, -1, 2**31, 2**63, 10**400, 0.5, None, True, [], {}, [{"type": 7}], {"code": ["x"]}),
    ]
).map(json.dumps)
DEEP = st.builds(
    lambda depth, ends: ends[0] * depth + "1" + ends[1] * depth,
    st.sampled_from([20, 450, 990, 3000]),
    st.sampled_from([("[", "]"), ('{"error":', "}"), ('{"format":', "}"), ('{"content":', "}")]),
)


def frame(body: bytes) -> bytes:
    """A message of RTVI over protobuf."""
    return _field(4, _field(1, body))


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A message with one value that no server should send."""
    message = draw(st.sampled_from(MESSAGES))
    place = draw(st.sampled_from([*places(message)]))
    text = json.dumps(altered(message, place, "HERE")).replace('"HERE"', draw(JUNK | DEEP)).encode()
    return draw(st.sampled_from([text, frame(text)]))


SOUND = st.builds(
    lambda rate, channels, sound: _field(2, _field(3, sound) + rate + channels),
    st.sampled_from([b"", _number(4, 24_000), _number(4, 2**62), _field(4, b"x")]),
    st.sampled_from([b"", _number(5, 1), _number(5, 2**62), _field(5, b"y" * 9)]),
    st.binary(max_size=9) | st.just(SAMPLES),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(broken() | SOUND | st.binary(max_size=50), max_size=12))
def test_a_reader_never_raises_and_keeps_no_more_than_its_limits(small: None, messages: list[bytes]) -> None:
    for name, read in (*readers().items(), *readers(save_audio=1).items()):
        for message in messages:
            event = read(message)
            assert isinstance(event, Event), name
            if isinstance(event, Audio):
                assert event.seconds >= 0
            if isinstance(event, Done):
                assert len(why(event)) < 100_000
        state = read if hasattr(read, "__dict__") else [cell.cell_contents for cell in read.__closure__ or ()]
        assert kept(state) < 30_000, name
    for message in messages:
        reply = ChatReply()
        reply.read(b"data: " + message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n")
        reply.end()
        assert reply.over is not None


@pytest.mark.parametrize(("chunks", "kind"), [(4000, Audio), (4100, Garbage)])
def test_a_wav_in_one_message_has_at_most_4096_chunks(chunks: int, kind: type[Event]) -> None:
    sound = base64.b64encode(SAMPLES + b"LIST\0\0\0\0" * chunks).decode()
    message = json.dumps({"type": "response.output_audio.delta", "response_id": "r", "delta": sound}).encode()
    assert isinstance(readers()["openai"](message), kind)


def why(done: Done) -> str:
    """Why a reply with output failed that ended so."""
    facts = Facts()
    facts.finish, facts.ended, facts.output = done.finish, True, True
    return outcome(facts) or ""


def test_a_reason_of_one_word_200_000_times_is_searched_once() -> None:
    """A pattern that began anew at each word took the square of their number."""
    assert why(Done("r", "incomplete", reason="max" * 200_000)).startswith("response incomplete: max")
    assert not why(Done("r", "incomplete", reason="max_output_tokens"))


WORD = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'


@pytest.mark.parametrize(
    ("begin", "more", "limit"),
    [
        (b"data: ", b"x" * 65_536, "an event above 16 MiB"),
        (b"data: ", b"\ndata: x" * 1000, "an event above 65,536 lines"),
        (b'data: {"choices":[],"usage":[' + b"[]," * 400_000, b"[]]}\n\n", "an event above 65,536 values"),
    ],
)
def test_an_event_without_end_is_a_failure_that_names_its_limit(begin: bytes, more: bytes, limit: str) -> None:
    reply = ChatReply()
    reply.read(begin)
    for _ in range(2000):
        reply.read(more)
        if reply.over:
            break
    assert reply.over == limit
    assert kept(reply) < 100_000


def test_a_reply_without_end_is_a_failure_once_it_passes_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MOST_REPLY", 2**16)
    reply, most = ChatReply(), 2**16 // len(WORD)
    assert sum(reply.read(WORD * most)) == most
    assert reply.over is None
    reply.read(WORD)
    assert reply.over == "a reply above 64 KiB"


def test_an_event_as_long_as_the_limit_is_read() -> None:
    stream, size = EventStream(), chat.MOST_MESSAGE - len(b"data: \r\n\r\n")
    event = b"data: " + b"x" * size + b"\n\n"
    for _ in range(2):  # the limit is of one event, not of the stream
        events = [each for at in range(0, len(event), 2**18) for each in stream.feed(event[at : at + 2**18])]
        assert [len(data) for _, data in events] == [size]


def test_a_session_has_at_most_8192_replies() -> None:
    replies: Replies[Reply] = Replies(Reply)
    for number in range(MOST_REPLIES):
        replies.created(str(number))
    with pytest.raises(Violation, match="more than 8,192 replies or items in a session"):
        replies.created("one more")


def test_a_reply_changes_its_item_at_most_8192_times() -> None:
    reply, half_a_second = Reply(), b"\x00\x10" * 12_000
    for number in range(MOST_REPLIES):
        reply.add(Audio("r", str(number % 2), 24_000, NOTHING, half_a_second))
    assert reply.received_s == MOST_REPLIES / 2
    with pytest.raises(Violation, match="more than 8,192 changes of items in a reply"):
        reply.add(Audio("r", "x", 24_000, NOTHING, half_a_second))


def test_a_line_of_metrics_above_16_kib_is_not_read() -> None:
    line = "a{" + ",".join(f'b{k}="c"' for k in range(4000)) + "} 1\n"
    poll = scrape._Poll(0.0, 0.0, zlib.compress(line.encode()), "")
    assert scrape._parsed(poll) == ([], "a line above 16 KiB")


@contextmanager
def steps() -> Iterator[list[int]]:
    """Counts the lines of Python that run."""
    count = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        count[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def test_sound_that_comes_60_s_ahead_of_its_playback_is_looked_through_once() -> None:
    player, sound = Player(), bytes(480) + b"\x10\x27" * 240
    with steps() as count:
        for packet in range(3000):
            player.arrive(0, 1e-3 * packet, 0.02, sound)
            assert list(player.ended(1e-3 * packet)) == []
    assert count[0] < 200 * 3000
    assert [(stretch.reply, round(stretch.end_s, 3)) for stretch in player.ended(1e9)] == [(0, 60.0)]
