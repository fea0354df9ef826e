"""What a protocol is to a client: the messages that it sends, and what the server's messages mean.

All dialects are JSON text messages over a WebSocket and share the names of OpenAI's Realtime API where they can, so the
reading of events stands here once; a dialect says what differs. Of a message only the needed fields are parsed, and
audio is not decoded: its length tells its seconds.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from harness.live.target import TargetParams
from workloads.trace import Turn

RATE = 24_000
"""Samples/s of received audio where neither the event nor the session says. [config: OpenAI Realtime API]"""
UNDO = "interrupt"
"""Begins the event_id of all that is sent to interrupt: the reply may have ended meanwhile, so no error about it
counts. [chosen]"""


class Ready(msgspec.Struct, frozen=True, gc=False):
    """The session can begin. ``rate``: samples/s of the audio to come; ``serves``: turns or frames, where it says."""

    rate: int | None = None
    serves: str | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """A reply begins. ``response``: its id."""

    response: str | None


class Text(msgspec.Struct, frozen=True, gc=False):
    """A piece of a reply's text: ``tokens`` as far as the server says, else 1; ``length`` in characters."""

    response: str | None
    tokens: int
    length: int


class Audio(msgspec.Struct, frozen=True, gc=False):
    """A packet of ``size`` bytes of 16-bit mono; ``rate`` in samples/s where the event says."""

    response: str | None
    item: str | None
    size: int
    rate: int | None


class Done(msgspec.Struct, frozen=True, gc=False):
    """A reply has ended. ``status``: completed, cancelled, incomplete or failed; ``reason`` of the last.

    transcribed: its text has ended, and any audio that has begun goes on until ``AudioDone``.
    ``text_tokens`` and ``audio_tokens``: produced for it; ``heard``: of these, text and audio tokens that the listener
    heard before it was cut. None: the server does not say.
    """

    response: str | None
    status: str
    text_tokens: int | None = None
    audio_tokens: int | None = None
    heard: tuple[int, int] | None = None
    reason: str = ""
    number: int | None = None
    """Of the event, where the server counts them and wants to know which have come."""


class AudioDone(msgspec.Struct, frozen=True, gc=False):
    """A reply's audio has ended."""

    response: str | None


class Heard(msgspec.Struct, frozen=True, gc=False):
    """How many text and audio tokens were heard of a reply that was cut after it had been made."""

    response: str | None
    heard: tuple[int, int]


class FrameDone(msgspec.Struct, frozen=True, gc=False):
    """An interaction session's answer up to frame number ``frame``: ``tokens`` of text."""

    frame: int
    tokens: int


class SpeechStarted(msgspec.Struct, frozen=True, gc=False):
    """The server's VAD hears the user begin."""


class SpeechStopped(msgspec.Struct, frozen=True, gc=False):
    """The server's VAD hears the user end."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The server reports an error. ``caused_by`` and ``param``: event_id and field of the message that it is about."""

    code: str
    message: str
    caused_by: str | None = None
    param: str | None = None

    @property
    def reason(self) -> str:
        """In a few words: errors of one kind have one reason."""
        return f"error: {self.code}" + (f" ({self.param})" if self.param else "")


class Garbage(msgspec.Struct, frozen=True, gc=False):
    """No event of this protocol: not JSON, without a type, or with a field of a wrong type."""


class Other(msgspec.Struct, frozen=True, gc=False):
    """Nothing that a measurement needs."""


Event = (
    Ready
    | Started
    | Text
    | Audio
    | Done
    | AudioDone
    | Heard
    | FrameDone
    | SpeechStarted
    | SpeechStopped
    | Failure
    | Garbage
    | Other
)

CLOSE: Final = "close"
"""An interruption for which the protocol has no message: the client hangs up and calls again."""


class Cut(NamedTuple):
    """The reply that is interrupted, or played. ``done``: the server has sent all of it."""

    response: str | None
    item: str | None
    played_s: float
    done: bool = False


@dataclass(frozen=True)
class Dialect:
    """One protocol, as ``target`` wants it spoken. Messages are whole JSON texts in UTF-8."""

    target: TargetParams

    name: ClassVar[str]
    input_rate: ClassVar[int]
    """Samples/s of the audio that is sent."""
    ready_on: ClassVar[str]
    """Type of the event after which the session can begin."""
    tells_heard: ClassVar[bool] = False
    """Whether the server says what was heard of a reply that was cut after it had been sent."""
    hears_frames: ClassVar[bool] = False
    """Whether servers of it may serve interaction sessions."""

    def url(self) -> str:
        return self.target.url

    def headers(self) -> dict[str, str]:
        """Of the handshake; with the token from the environment, where there is one."""
        token = self.target.token(self.name)
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def cannot(self, typed: bool) -> str | None:
        """Why this dialect cannot do what the target or the trace wants; ``typed``: the trace has typed turns."""
        return None

    def hello(self) -> list[bytes]:
        """Sent as soon as the connection is open."""
        raise NotImplementedError

    def append(self, pcm: bytes) -> bytes:
        """Audio, 16-bit little-endian mono at ``input_rate``."""
        return b'{"type":"input_audio_buffer.append","audio":"%s"}' % b2a_base64(pcm, newline=False)

    def begin_of_turn(self) -> list[bytes]:
        """The user begins to speak."""
        return []

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        """The user has spoken and wants a reply. Empty where the server's VAD finds that out."""
        raise NotImplementedError

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        """The user has typed ``text`` and wants a reply."""
        raise NotImplementedError

    def cancel(self, cut: Cut) -> list[bytes]:
        """Make no more of the reply."""
        if cut.done:
            return []
        about = {} if cut.response is None else {"response_id": cut.response}
        return [encode("response.cancel", event_id=f"{UNDO}-cancel", **about)]

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """The user speaks over the reply, after hearing ``cut.played_s`` seconds of it."""
        raise NotImplementedError

    def ack(self, played: Cut, playing: bool) -> list[bytes]:
        """How far the reply has been played; ``played.done``: to its end. Empty: servers do not want to know."""
        return []

    def receipt(self, done: Done) -> list[bytes]:
        """That the events up to this one have come."""
        return []

    def frame(self, turn: Turn) -> list[bytes]:
        """What is said of an interaction session's frame before its audio."""
        return []

    def classify(self, data: bytes) -> Event:
        """What a message means; never raises."""
        try:
            message = _decode(data)
        except msgspec.ValidationError:
            kind = _type_of(data)
            return Other() if kind and kind not in _READ else Garbage()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Garbage()
        read = _READ.get(message.type)
        try:
            if read is not None:
                return read(message)
            if message.type == self.ready_on:
                return _ready(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Garbage()
        return Other() if message.type else Garbage()


def encode(kind: str, **fields: Any) -> bytes:
    """An event as the bytes of a message."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def with_query(url: str, **defaults: str | None) -> str:
    """``url`` with these query parameters, as far as it has them not and they are not None."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    missing = {name: value for name, value in defaults.items() if value is not None and name not in given}
    return urlunsplit(parts._replace(query=urlencode({**given, **missing})))


class _Message(msgspec.Struct, gc=False):
    """The fields that are read, of all events together. What is nested is parsed where it is needed."""

    type: str = ""
    delta: str | None = None
    audio: str | None = None
    response_id: str | None = None
    item_id: str | None = None
    sample_rate_hz: int | None = None
    server_event_seq: int | None = None
    tokens: int | None = None
    frame: int = 0
    reason: str | None = None
    code: str | None = None
    response: msgspec.Raw = msgspec.Raw(b"null")
    session: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")
    usage: msgspec.Raw = msgspec.Raw(b"null")
    heard: msgspec.Raw = msgspec.Raw(b"null")


class _Type(msgspec.Struct):
    type: str = ""


class _Id(msgspec.Struct):
    id: str | None = None


class _Split(msgspec.Struct):
    text_tokens: int | None = None
    audio_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    output_token_details: _Split | None = None

    def produced(self) -> tuple[int | None, int | None]:
        """Text and audio tokens. Without a split nobody knows which are which."""
        split = self.output_token_details
        return (split.text_tokens, split.audio_tokens) if split is not None else (None, None)


class _Stages(msgspec.Struct):
    thinker: int = 0
    talker: int = 0


class _Told(msgspec.Struct):
    heard: _Stages | None = None


class _Error(msgspec.Struct):
    type: str | None = None
    code: str | None = None
    message: str | None = None
    event_id: str | None = None
    param: str | None = None


class _Details(msgspec.Struct):
    reason: str | None = None
    error: _Error | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    status: str | None = None
    status_details: _Details | None = None
    usage: _Usage | None = None
    rehearsal: _Told | None = None


class _Format(msgspec.Struct):
    rate: int | None = None


class _Output(msgspec.Struct):
    format: _Format | str | None = None


class _Streams(msgspec.Struct):
    output: _Output | None = None


class _Own(msgspec.Struct):
    serves: str | None = None


class _Session(msgspec.Struct):
    audio: _Streams | None = None
    rehearsal: _Own | None = None


_decode = msgspec.json.Decoder(_Message).decode
_decode_type = msgspec.json.Decoder(_Type).decode
_decode_session = msgspec.json.Decoder(_Session | None).decode
_decode_id = msgspec.json.Decoder(_Id | None).decode
_decode_response = msgspec.json.Decoder(_Response | None).decode
_decode_usage = msgspec.json.Decoder(_Usage | None).decode
_decode_stages = msgspec.json.Decoder(_Stages | None).decode
_decode_error = msgspec.json.Decoder(_Error | str | None).decode


def _type_of(data: bytes) -> str:
    try:
        return _decode_type(data).type
    except msgspec.DecodeError:
        return ""


def _ready(message: _Message) -> Event:
    try:
        session = _decode_session(message.session)
    except msgspec.ValidationError:  # a session of another shape, which need not tell what is read here
        session = None
    if session is None:
        return Ready()
    output = session.audio.output if session.audio else None
    rate = output.format.rate if output and isinstance(output.format, _Format) else None
    return Ready(rate, session.rehearsal.serves if session.rehearsal else None)


def _started(message: _Message) -> Event:
    response = _decode_id(message.response)
    return Started(response.id if response else message.response_id)


def _text(message: _Message) -> Event:
    length = len(message.delta or "")
    if not length:
        return Other()
    return Text(message.response_id, message.tokens or 1, length)


def _audio(message: _Message) -> Event:
    data = message.delta if message.delta is not None else message.audio
    if not isinstance(data, str):
        return Garbage()
    size = len(data) * 3 // 4 - (data[-2:].count("=") if data else 0)
    return Audio(message.response_id, message.item_id, size, message.sample_rate_hz)


def _done(message: _Message) -> Event:
    response = _decode_response(message.response) or _Response()
    text, audio = response.usage.produced() if response.usage else (None, None)
    told = response.rehearsal.heard if response.rehearsal else None
    details = response.status_details or _Details()
    error = details.error or _Error()
    return Done(
        response.id or message.response_id,
        response.status or "completed",
        text,
        audio,
        (told.thinker, told.talker) if told else None,
        error.code or error.type or details.reason or "",
        message.server_event_seq,
    )


def _transcribed(message: _Message) -> Event:
    usage = _decode_usage(message.usage)
    return Done(None, "transcribed", usage.completion_tokens if usage else None)


def _heard(message: _Message) -> Event:
    stages = _decode_stages(message.heard) or _Stages()
    return Heard(message.response_id, (stages.thinker, stages.talker))


def _failure(message: _Message) -> Event:
    error = _decode_error(message.error)
    if isinstance(error, _Error):
        return Failure(
            error.code or error.type or "unknown", error.message or "", error.event_id, error.param
        )
    return Failure(message.code or "unknown", error or "")


_READ: dict[str, Callable[[_Message], Event]] = {
    "response.output_audio.delta": _audio,
    "response.audio.delta": _audio,  # beta name
    "response.output_audio_transcript.delta": _text,
    "response.audio_transcript.delta": _text,  # beta name
    "response.output_text.delta": _text,
    "response.text.delta": _text,  # beta name
    "response.output_audio.done": lambda message: AudioDone(message.response_id),
    "transcription.delta": _text,  # vLLM
    "transcription.done": _transcribed,  # vLLM
    "response.created": _started,
    "response.done": _done,
    "input_audio_buffer.speech_started": lambda _: SpeechStarted(),
    "input_audio_buffer.speech_stopped": lambda _: SpeechStopped(),
    "error": _failure,
    "rehearsal.heard": _heard,
    "rehearsal.frame.done": lambda message: FrameDone(message.frame, message.tokens or 0),
    "rehearsal.session.failed": lambda message: Failure("session failed", message.reason or ""),
}
