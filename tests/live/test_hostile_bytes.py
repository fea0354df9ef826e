"""Whatever bytes a server sends, and however they are cut: every reader ends with a result or a named failure, keeps no
more than its limits, and looks at each byte a few times at most."""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.live.endpoints.dialects import DIALECTS, chat, dialect_of, parsing
from harness.live.endpoints.dialects.audio_format import NOTHING, AudioFormat, named, stated
from harness.live.endpoints.dialects.chat import ChatReply, EventStream
from harness.live.endpoints.dialects.events import Audio, Done, Event, Garbage
from harness.live.endpoints.dialects.rtvi import _field, _number
from harness.live.endpoints.dialects.synthesis import Sound, Synthesis
from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.replies import Replies, Reply
from harness.live.endpoints.target import OFFERS, TargetParams
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation
from harness.live.run import scrape
from workloads.audio import wav

Read = Callable[[bytes], object]
FORMAT = AudioFormat("pcm", 24_000)
URL = "ws://127.0.0.1:1/v1/realtime"


def readers(save_audio: int | None = None) -> dict[str, Read]:
    """A fresh reader of each dialect's messages; none of them may raise."""
    about = {"model": "m", "save_audio": save_audio}
    urls = {name: "http://127.0.0.1:1/" if name in OFFERS else URL for name in DIALECTS}
    targets = [TargetParams.model_validate({"url": urls[name], "dialect": name, **about}) for name in urls]
    by_dialect: dict[str, Read] = {target.dialect: dialect_of(target).reader() for target in targets}
    by_dialect["synthesis"] = Synthesis(targets[0]).reader()
    return by_dialect


class Streams:
    """The readers of streams, fresh ones. A Violation or a ValueError is their named failure."""

    def __init__(self) -> None:
        self.events, self.chat, self.sound, self.wav = EventStream(), ChatReply(), Sound(), wav.Stream()
        self.all: list[tuple[Any, Read]] = [
            (self.events, self.events.feed),
            (self.chat, self.chat.read),
            (self.sound, lambda piece: self.sound.feed(piece, FORMAT)),
            (self.wav, self.wav.feed),
        ]


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


class Counted(bytes):
    """Bytes that count how many of them a reader copies in slices and sums."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, bytes):
            Counted.copied += len(part)
            return Counted(part)
        return part

    def __add__(self, other: Any) -> Any:
        Counted.copied += len(self) + len(other)
        return Counted(super().__add__(other))

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, bytearray):  # which grows in place
            Counted.copied += len(self)
            return other.__iadd__(bytes(self))
        Counted.copied += len(self) + len(other)
        return Counted(bytes(other) + bytes(self))


CHUNK = st.builds(
    lambda name, size, body: name + struct.pack("<I", len(body) if size is None else size) + body,
    st.sampled_from([b"LIST", b"data", b"fmt ", b"RIFF", b"\0\1\2\3", b"JUNK"]),
    st.sampled_from([None, None, 0, 1, 2**21, 2**32 - 1]),
    st.binary(max_size=24),
)
WAV = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
SAMPLES = WAV + b"data\2\0\0\0ab"
SYNTAX = st.sampled_from(
    [
        *(b"data: ", b"data:", b"event: error\n", b"\n", b"\r\n", b"\r", b"\n\n", b": ping\n", b"\xef\xbb\xbf"),
        *(b'{"choices":[{"delta":{"content":"a"}}]}', b'"finish_reason":"stop"', b"[DONE]", b"[", b"{", b"]}"),
        *(b'"', b'\\ud83d"', b"null", b"NaN", b"1e999", b"9" * 400, b",", b":", b"\xff", b"\0"),
        *(WAV, WAV + b"data\4\0\0\0", b"RIFF", b"RIFF\0\0\0\0WAVE"),
    ]
)
BYTES = st.lists(st.binary(max_size=12) | SYNTAX | CHUNK, max_size=25).map(b"".join)


@st.composite
def cut(draw: st.DrawFn) -> list[bytes]:
    """A stream in pieces, of which the last may be missing."""
    stream = draw(BYTES) * draw(st.sampled_from([1, 1, 3, 50]))
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    return [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that short streams reach."""
    for module, limits in (
        (chat, {"MOST_MESSAGE": 2000, "MOST_PARTS": 50, "MOST_REPLY": 10_000, "LENIENT": 500}),
        (parsing, {"LENIENT": 500, "_MOST_KEPT": 5, "_LONGEST_FORMAT": 100}),
        (wav, {"_MOST_HEADER": 2000, "_MOST_CHUNKS": 50}),
    ):
        for name, limit in limits.items():
            monkeypatch.setattr(module, name, limit)


in_small = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_small
@given(cut())
def test_a_reader_of_streams_keeps_no_more_than_its_limits(small: None, pieces: list[bytes]) -> None:
    for reader, read in Streams().all:
        longest = max(map(len, pieces))
        for piece in pieces:
            with suppress(Violation, ValueError):
                read(piece)
            assert kept(reader) < 20_000 + 60 * longest
    reply = ChatReply()
    for piece in pieces:
        reply.read(piece)
    reply.end()
    assert reply.over is not None


ID = st.sampled_from(["r", "s", "x" * 300, "\ud83d", '"', None, 7]) | st.text(max_size=3)
NUMBER = st.sampled_from([0, -1, 2**31, 2**63, 10**30, 10**400, 0.5, "8", None, True])
ANY = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(max_size=4) | ID,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FORMATS = st.sampled_from(["pcm16", "audio/pcm;rate=16000", "x" * 500, "audio/pcm;bits=" + "9" * 5000]) | ANY
SPEECH = st.sampled_from(["", "AAAA", "AA\nAA", "=", "A=B", "é", base64.b64encode(WAV + b"data").decode()]) | ANY
KINDS = [
    *("session.created", "session.updated", "response.created", "response.output_audio.delta"),
    *("response.audio.delta", "response.output_text.delta", "response.done", "response.cancelled", "error"),
    *("response.output_item.added", "transcription.done", "rehearsal.heard", "rehearsal.frame.done"),
    *("audio.start", "session.done", "output_audio_buffer.cleared", "unheard.of", ""),
]
USAGE = st.fixed_dictionaries({}, optional={"completion_tokens": NUMBER, "output_token_details": ANY})
RESPONSE = st.fixed_dictionaries(
    {}, optional={"id": ID, "usage": USAGE, "output_audio_format": FORMATS, "status": ANY, "status_details": ANY}
)
MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        **dict.fromkeys(("response_id", "item_id", "item", "session"), ID | ANY),
        **dict.fromkeys(("delta", "audio"), SPEECH),
        **dict.fromkeys(("format", "encoding", "mime_type"), FORMATS),
        **dict.fromkeys(("sample_rate", "channels", "tokens", "waited_ms", "frame", "server_event_seq"), NUMBER),
        "response": RESPONSE | ANY,
        "usage": USAGE | ANY,
        "heard": st.fixed_dictionaries({}, optional={"thinker": NUMBER, "talker": NUMBER}),
        "error": ANY,
        "code": ANY,
    },
)
NESTED = st.builds(
    lambda depth, name, left, right: left * depth + name + right * depth,
    st.sampled_from([20, 450, 900, 990, 3000]),
    st.sampled_from([b"1", b'"pcm16"', b""]),
    *(st.just(each) for each in ([b"[", b"]"])),
) | st.builds(
    lambda depth, name: b'{"%s":' % name * depth + b"1" + b"}" * depth,
    st.sampled_from([20, 300, 900, 990]),
    st.sampled_from([b"error", b"message", b"audio", b"output", b"format", b"session", b"content"]),
)
AROUND = st.sampled_from(
    [
        b"%s",
        b'{"type":"session.updated","session":%s}',
        b'{"type":"response.created","response":%s,"format":%s}',
        b'{"type":"response.output_audio.delta","delta":"AAAA","format":%s}',
        b'{"type":"error","error":%s}',
        b'{"type":"audio.start","format":%s}',
        b'{"type":"response.done","response":{"id":"r","status":"failed","status_details":%s}}',
        b'{"type":"unheard.of","session":%s,"x":"\\ud83d"}',
        b'{"choices":[{"delta":{"content":%s}}]}',
        b'{"choices":[{"finish_reason":%s}]}',
    ]
)


def frame(body: bytes) -> bytes:
    return _field(4, _field(1, body))


JSON = MESSAGE.map(lambda message: json.dumps(message).encode())
DEEP = st.builds(lambda around, inner: around.replace(b"%s", inner), AROUND, NESTED)
RTVI = JSON.map(
    lambda text: frame(text.replace(b"response.created", b"bot-ready").replace(b"session", b"config"))
) | st.builds(
    lambda rate, channels, sound: _field(2, _field(3, sound) + rate + channels),
    st.sampled_from([b"", _number(4, 1), _number(4, 24_000), _number(4, 2**62), _field(4, b"x")]),
    st.sampled_from([b"", _number(5, 1), _number(5, 2**62), _field(5, b"y" * 9)]),
    st.binary(max_size=9) | st.just(SAMPLES),
)


@in_small
@given(st.lists(JSON | DEEP | RTVI | DEEP.map(frame) | BYTES, max_size=12))
def test_a_reader_of_messages_never_raises_and_keeps_no_more_than_its_limits(
    small: None, messages: list[bytes]
) -> None:
    for name, read in (*readers().items(), *readers(save_audio=1).items()):
        for message in messages:
            event = read(message)
            assert isinstance(event, Event), name
            if isinstance(event, Audio):
                assert event.seconds >= 0
            if isinstance(event, Done):
                assert len(why(event)) < 100_000
        kept_bytes = kept(
            read if hasattr(read, "__dict__") else [cell.cell_contents for cell in read.__closure__ or ()]
        )
        assert kept_bytes < 30_000, name
    for message in messages:
        reply = ChatReply()
        reply.read(b"data: " + message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n")
        reply.end()
        assert reply.over is not None


FLOODS = {
    "a line": b"data: " + b"x" * 40_000,
    "lines": b"data: x\n" * 5000,
    "events": b"data: x\n\n" * 4444,
    "chunks before the samples": WAV + b"LIST\0\0\0\0" * 5000,
    "chunks after them": SAMPLES + b"LIST\0\0\0\0" * 5000,
    "short WAVs": SAMPLES * 870,
    "a long chunk": WAV + b"LIST\0\0\x0f\0" + b"y" * 40_000,
    "a format": WAV[:16] + b"\0\0\x0f\0" + b"z" * 40_000,
}
"""What a hostile server sends on and on."""


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("piece", [7, 1000, 40_000])
def test_each_byte_is_copied_a_few_times_however_short_the_pieces(kind: str, piece: int) -> None:
    """Readers that copied all they hold for every piece took hours for a long line."""
    stream = FLOODS[kind]
    for reader, read in Streams().all:
        Counted.copied = 0
        for at in range(0, len(stream), piece):
            with suppress(Violation, ValueError):
                read(Counted(stream[at : at + piece]))
        begin = chat.MOST_BYTES**2 // piece if isinstance(reader, ChatReply) else 0
        assert Counted.copied <= 8 * len(stream) + 2 * begin


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


METRICS = st.lists(
    st.sampled_from(
        ["# HELP ", "# TYPE ", "a", "{", "}", 'b="c"', ",", '"', "\\", " 1", " NaN", "\n", " counter", "=", "#", "\0"]
    )
    | st.text(max_size=4),
    max_size=30,
).map("".join)


@settings(max_examples=300)
@given(METRICS.map(str.encode) | st.binary(max_size=60))
def test_metrics_of_any_text_are_samples_or_a_reason(text: bytes) -> None:
    samples, reason = scrape._parsed(scrape._Poll(0.0, 0.0, zlib.compress(text), ""))
    assert reason in ("", "garbage") and (not reason or not samples)
    assert all(isinstance(value, float) for _, _, value in samples)


def test_a_line_of_metrics_above_16_kib_is_not_read() -> None:
    line = "a{" + ",".join(f'b{k}="c"' for k in range(4000)) + "} 1\n"
    poll = scrape._Poll(0.0, 0.0, zlib.compress(line.encode()), "")
    assert scrape._parsed(poll) == ([], "a line above 16 KiB")


def test_nothing_long_stays_in_a_cache() -> None:
    """Formats are remembered by their names, which a server may make as long as a message."""
    for k in range(300):
        message = {"type": "response.audio.delta", "delta": "AAAA", "encoding": f"pcm{k}" + "x" * 100_000}
        readers()["openai"](msgspec.json.encode(message))
        named(f"pcm{k}" + "y" * 100_000)
    from harness.live.endpoints.dialects import audio_format

    for cache in (parsing._own, audio_format._named):
        assert cache.cache_info().currsize <= 256
    assert named("z" * 10_000).encoding == "z" * 40 and stated({"a": 1}) == NOTHING
