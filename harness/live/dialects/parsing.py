"""From a message to what it means. Of a message only the needed fields are parsed, and audio is not decoded: its length
tells its seconds, and who needs its samples decodes them.
"""

from collections.abc import Callable

import msgspec

from harness.live.dialects.events import (
    Audio,
    AudioDone,
    Cleared,
    Committed,
    Done,
    Event,
    Failure,
    FrameDone,
    Garbage,
    Other,
    Ready,
    SpeechStarted,
    SpeechStopped,
    Started,
    Text,
    TokensPlayed,
)


def read(data: bytes, ready_on: str) -> Event:
    """What `data` means in a protocol whose sessions can begin after an event of type `ready_on`; never raises."""
    try:
        message = _decode(data)
    except msgspec.ValidationError:
        kind = _type_of(data)
        return Other() if kind and kind not in _READ else Garbage()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Garbage()
    reader = _READ.get(message.type)
    try:
        if reader is not None:
            return reader(message)
        if message.type == ready_on:
            return _ready(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Garbage()
    return Other() if message.type else Garbage()


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
    waited_ms: int = 0
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
    return Audio(message.response_id, message.item_id, size, message.sample_rate_hz, data)


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


def _played(message: _Message) -> Event:
    stages = _decode_stages(message.heard) or _Stages()
    return TokensPlayed(message.response_id, (stages.thinker, stages.talker))


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
    "input_audio_buffer.committed": lambda _: Committed(),
    "output_audio_buffer.cleared": lambda message: Cleared(message.response_id),
    "error": _failure,
    "rehearsal.heard": _played,
    "rehearsal.frame.done": lambda message: FrameDone(
        message.frame, message.tokens or 0, message.waited_ms / 1000
    ),
    "rehearsal.session.failed": lambda message: Failure("session failed", message.reason or ""),
}
