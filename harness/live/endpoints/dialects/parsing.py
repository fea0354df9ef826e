"""From a message to what it means. Of a message only the needed fields are parsed, and audio is not decoded: its length
tells its seconds, and who needs its samples decodes them. A field that is not as it should be counts as left out.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from harness.live.endpoints.dialects.audio_format import (
    LONGEST_NAME,
    NOTHING,
    RATES,
    AudioFormat,
    decoded,
    length,
    stated,
)
from harness.live.endpoints.dialects.chat import LENIENT, any_json, stated_error
from harness.live.endpoints.dialects.events import (
    Audio,
    AudioDone,
    Cleared,
    Committed,
    Done,
    Event,
    Failure,
    FrameDone,
    Garbage,
    Greeted,
    Item,
    Other,
    Ready,
    SpeechStarted,
    SpeechStopped,
    Started,
    Text,
    TokensPlayed,
    UnreadAudio,
)
from workloads.audio import wav

_SESSIONS = ("session.created", "session.updated")
_AUDIO = frozenset({"response.output_audio.delta", "response.audio.delta"})
"""The second is the beta name, as of others below."""
_NULL = msgspec.Raw(b"null")
_RIFF = "UklGR"
"""A WAV's first bytes in base64."""
_MOST_KEPT = 256
"""Replies whose own format is kept. [chosen]"""
_LONGEST_FORMAT = 4096
"""Bytes of an event's `format`. [chosen]"""
_Name = Annotated[str, Meta(max_length=256)]
"""An id. [chosen] Servers' have 20 to 60 characters."""
_Count = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of tokens or events, which a float can hold."""


class Reader:
    """The reader of one connection's messages, in a protocol whose sessions can begin after the event `ready_on`. It
    keeps the audio format that the server has stated for the session and for replies."""

    def __init__(self, ready_on: str) -> None:
        self._ready_on = ready_on
        self._session = NOTHING
        self._replies: dict[str | None, AudioFormat] = {}

    def __call__(self, data: bytes) -> Event:
        """Return the meaning of `data`; never raises."""
        try:
            message = _decoded(data, _Message)
            if message is None:
                return Garbage()
            kind = message.type
            if kind in _AUDIO:
                return self._audio(message)
            reader = _READ.get(kind)
            if kind == "response.created":
                self._state(message)
            elif kind in _SESSIONS or kind == self._ready_on:
                self._session = _stated(data, "session").over(self._session)
                if kind == self._ready_on:
                    return _ready(message, self._session)
                if kind == "session.created":
                    return Greeted()
            if reader is not None:
                return reader(message)
            if kind.startswith("response.") and kind.endswith(".delta"):
                return _text(message)  # of a channel of tomorrow, such as a call of a tool
            return Other() if kind else _untyped(data)
        except (ValueError, OverflowError, RecursionError):
            return Garbage()

    def _state(self, message: "_Message") -> None:
        response = bytes(message.response)
        about = _stated(response) if b"format" in response or b"rate" in response else NOTHING
        if about != NOTHING or self._replies:
            self._replies[None] = about
            self._keep(_started(message).response, about)

    def _keep(self, id: str | None, format: AudioFormat) -> None:
        self._replies[id] = format
        if len(self._replies) > _MOST_KEPT:
            del self._replies[next(name for name in self._replies if name is not None)]

    def _audio(self, message: "_Message") -> Event:
        base64 = message.delta if message.delta is not None else message.audio
        if base64 is None:
            return Garbage()
        data: str | bytes = base64
        id, format = message.response_id, self._session
        if self._replies:
            format = self._replies.get(id, self._replies[None] if id is None else NOTHING).over(format)
        if message.states:
            format = message.stated().over(format)
        if base64.startswith(_RIFF) and (samples := samples_of_wav(decoded(base64))) is not None:
            data, format = samples
            self._replies.setdefault(None, NOTHING)
            self._keep(id, format)
            size = len(data)
        else:
            size = length(base64)
        return UnreadAudio(id, format) if format.unread else Audio(id, message.item_id, size, format, data)


class Created(msgspec.Struct):
    """A first event by OpenAI's names. `session`: its session; None: it has none."""

    type: str = ""
    session: dict[str, Any] | None = None


def first_event(message: bytes) -> Created | None:
    """Return a message as an event; None: it is none."""
    try:
        return msgspec.json.decode(message, type=Created) if len(message) <= LENIENT else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def created(message: bytes) -> Created | None:
    """Return a first event that begins a session by OpenAI's names; None: it is none."""
    hello = first_event(message)
    return hello if hello is not None and hello.type == "session.created" else None


def _untyped(data: bytes) -> Event:
    """Return the meaning of an object without a type: some servers state errors so."""
    error = stated_error(any_json(data))
    return Garbage() if error is None else Failure(error[0] or "unknown", error[1])


def samples_of_wav(content: bytes) -> tuple[bytes, AudioFormat] | None:
    """Return the samples of a WAV that begins with its header, and what that states of them; None where it does not.
    ValueError as of `wav.Stream`."""
    if content[:4] != b"RIFF":
        return None
    stream = wav.Stream()
    raw = stream.feed(content) if wav.begins(content) else b""
    return None if stream.header is None else (raw, format_of_wav(stream.header))


@lru_cache(64)
def format_of_wav(header: wav.Header) -> AudioFormat:
    """Return the format of its samples."""
    encodings = {(1, 16): "pcm", (7, 8): "u-law", (6, 8): "A-law"}
    kind = "floats" if header.tag == 3 else "PCM" if header.tag == 1 else f"format {header.tag}"
    encoding = encodings.get((header.tag, header.bits)) or f"WAV of {header.bits}-bit {kind}"
    if header.rate and header.rate not in RATES:
        encoding = f"WAV of {header.rate} Hz"
    return AudioFormat(encoding, header.rate, header.channels)


class _Message(msgspec.Struct, gc=False):
    """The fields that are read, of all events together. Nested values are parsed when needed."""

    type: str = ""
    delta: str | None = None
    audio: str | None = None
    response_id: _Name | None = None
    item_id: _Name | None = None
    sample_rate_hz: float | None = None
    sample_rate: float | None = None
    rate: float | None = None
    format: msgspec.Raw = _NULL
    encoding: str | None = None
    mime_type: str | None = None
    channels: int | None = None
    server_event_seq: _Count | None = None
    tokens: _Count | None = None
    frame: _Count = 0
    waited_ms: _Count = 0
    reason: str | None = None
    code: str | None = None
    response: msgspec.Raw = _NULL
    session: msgspec.Raw = _NULL
    item: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL
    heard: msgspec.Raw = _NULL

    @property
    def states(self) -> bool:
        """True where the event states something of its audio format."""
        return (
            self.sample_rate_hz is not None
            or self.sample_rate is not None
            or self.format != _NULL
            or self.encoding is not None
            or self.rate is not None
            or self.mime_type is not None
            or self.channels is not None
        )

    def stated(self) -> AudioFormat:
        rate = self.sample_rate_hz or self.sample_rate or self.rate
        names = [None if name is None else name[:LONGEST_NAME] for name in (self.encoding, self.mime_type)]
        format = bytes(self.format)
        return _own(rate, *names, self.channels, format if len(format) <= _LONGEST_FORMAT else b"null")


@lru_cache(256)
def _own(*about: Any) -> AudioFormat:
    rate, encoding, mime_type, channels, format = about
    fields = {"sample_rate": rate, "encoding": encoding, "mime_type": mime_type, "channels": channels}
    return stated({**fields, "format": _lenient(format)})


class _Id(msgspec.Struct):
    id: _Name | None = None


class _Split(msgspec.Struct):
    text_tokens: _Count | None = None
    audio_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    completion_tokens: _Count | None = None
    output_token_details: _Split | None = None

    def produced(self) -> tuple[int | None, int | None]:
        """Return the text and audio tokens. Without a split the kinds are not known."""
        split = self.output_token_details
        return (split.text_tokens, split.audio_tokens) if split is not None else (None, None)


class _Stages(msgspec.Struct):
    thinker: _Count = 0
    talker: _Count = 0


class _Told(msgspec.Struct):
    heard: _Stages | None = None


class _Error(msgspec.Struct):
    type: str | None = None
    code: str | int | None = None
    message: str | None = None
    event_id: str | None = None
    param: str | None = None

    @property
    def name(self) -> str:
        """Its code or its type; empty without both."""
        return str(self.code or self.type or "")


class _Details(msgspec.Struct):
    reason: str | None = None
    error: _Error | None = None


class _Response(msgspec.Struct):
    id: _Name | None = None
    status: str | None = None
    status_details: _Details | None = None
    usage: _Usage | None = None
    rehearsal: _Told | None = None


class _Own(msgspec.Struct):
    serves: str | None = None


class _Session(msgspec.Struct):
    rehearsal: _Own | None = None


S = TypeVar("S", bound=msgspec.Struct)
_DECODERS: dict[Any, Any] = {}


def _decoded(data: bytes | msgspec.Raw, cls: type[S]) -> S | None:
    """Return `data` as an object with valid fields only; None: not a JSON object."""
    decoder = _DECODERS.get(cls) or _DECODERS.setdefault(cls, msgspec.json.Decoder(cls))
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    fields = _lenient(data)
    return _kept(fields, cls) if isinstance(fields, dict) else None


def _lenient(data: bytes | msgspec.Raw) -> Any:
    """Return the value of JSON, also with half of an emoji in it; None for what is none, or too long."""
    data = bytes(data)
    try:
        return json.loads(data) if len(data) <= LENIENT else None
    except (ValueError, RecursionError):
        return None


def _kept(fields: dict[str, Any], cls: type[S]) -> S:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        value = fields.get(field.name)
        if field.type is msgspec.Raw:
            values[field.name] = msgspec.Raw(json.dumps(value).encode())
            continue
        try:
            values[field.name] = msgspec.convert(value, field.type, strict=False)
        except (msgspec.ValidationError, ValueError):
            types = (each for each in get_args(field.type) if isinstance(each, type))
            inner = next((each for each in types if issubclass(each, msgspec.Struct)), None)
            if inner is not None and isinstance(value, dict):
                values[field.name] = _kept(value, inner)
    return cls(**values)


def _of(raw: msgspec.Raw, cls: type[S]) -> S:
    """Return the object of a field, empty where it is null. ValueError where it is not an object."""
    value = cls() if bytes(raw) == b"null" else _decoded(raw, cls)
    if value is None:
        raise ValueError("no object")
    return value


def _stated(data: bytes | msgspec.Raw, name: str | None = None) -> AudioFormat:
    """Return the audio format that an object states. Its field `name` goes before the object itself."""
    about = _lenient(data)
    inner = about.pop(name, None) if name is not None and isinstance(about, dict) else None
    return stated(inner).over(stated(about))


def _ready(message: _Message, format: AudioFormat) -> Event:
    session = _decoded(message.session, _Session)
    return Ready(format, session.rehearsal.serves if session and session.rehearsal else None)


def _started(message: _Message) -> Started:
    return Started(_of(message.response, _Id).id or message.response_id)


def _item(message: _Message) -> Event:
    item = message.item_id or _of(message.item, _Id).id
    return Item(message.response_id, item) if message.response_id and item else Other()


def _text(message: _Message) -> Event:
    length = len(message.delta or "")
    return Text(message.response_id, message.tokens or 1, length, message.item_id) if length else Other()


def _done(message: _Message) -> Event:
    response = _of(message.response, _Response)
    text, audio = response.usage.produced() if response.usage else (None, None)
    heard_tokens = response.rehearsal.heard if response.rehearsal else None
    details = response.status_details or _Details()
    error = details.error or _Error()
    return Done(
        response.id or message.response_id,
        response.status or ("cancelled" if message.type == "response.cancelled" else "completed"),
        text,
        audio,
        (heard_tokens.thinker, heard_tokens.talker) if heard_tokens else None,
        error.name or details.reason or "",
        message.server_event_seq,
    )


def _played(message: _Message) -> Event:
    stages = _of(message.heard, _Stages)
    return TokensPlayed(message.response_id, (stages.thinker, stages.talker))


def _failure(message: _Message) -> Event:
    error = _decoded(message.error, _Error)
    if error is not None:
        return Failure(error.name or "unknown", error.message or "", error.event_id, error.param)
    value = _lenient(message.error)
    return Failure(message.code or "unknown", value if isinstance(value, str) else "")


_READ: dict[str, Callable[[_Message], Event]] = {
    "response.output_item.added": _item,
    "response.content_part.added": _item,
    "response.output_audio.done": lambda message: AudioDone(message.response_id, message.item_id),
    "transcription.delta": _text,  # vLLM
    "transcription.done": lambda message: Done(None, "transcribed", _of(message.usage, _Usage).completion_tokens),
    "response.created": _started,
    "response.done": _done,
    "response.cancelled": _done,
    "input_audio_buffer.speech_started": lambda _: SpeechStarted(),
    "input_audio_buffer.speech_stopped": lambda _: SpeechStopped(),
    "input_audio_buffer.committed": lambda _: Committed(),
    "output_audio_buffer.cleared": lambda message: Cleared(message.response_id),
    "error": _failure,
    "rehearsal.heard": _played,
    "rehearsal.frame.done": lambda message: FrameDone(message.frame, message.tokens or 0, message.waited_ms / 1000),
    "rehearsal.session.failed": lambda message: Failure("session failed", message.reason or ""),
}
