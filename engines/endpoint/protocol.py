"""The wire between a client and our server: JSON text messages, a subset of OpenAI's Realtime API (GA names).

Client to server: `session.update`; `input_audio_buffer.append`, `.commit`, `.clear`;
`conversation.item.create` (messages with input_text), `.truncate`, `.delete`; `response.create`, `.cancel`;
`output_audio_buffer.clear`. Beyond OpenAI's:

* `rehearsal.playback` {response_id, played_ms, playing, done}: what has been played of a reply.
* `rehearsal.silence` {ends_turn, reply}: with server VAD, before the first silent audio after speech: whether the user
  has ended the turn, which a simulated detector cannot hear, and lengths of the reply to it, as below.
* `rehearsal.frame` {frame, output_tokens, content}: of interaction sessions, before the frame's last audio.
* `session.update` may carry `session.rehearsal.interruption` {min_duration_ms, min_words}: how much speech takes the
  floor from a reply.
* `response.create` may carry `response.metadata.rehearsal`, a JSON object as a string (OpenAI's metadata holds
  strings only) with what a modelled device cannot know: output_tokens, reply_audio_s (null: text only),
  visual_tokens, input_tokens, content.

Server to client: OpenAI's names, which its own client validates, `output_audio_buffer.cleared` also when speech that
the server finds cuts a reply, as over OpenAI's WebRTC; and beyond them `session.rehearsal` in session.created,
`response.rehearsal` {heard: {thinker, talker}} in the response.done of a cancelled reply, `rehearsal.heard`
{response_id, item_id, heard} when a reply that was complete is interrupted while it plays (only to clients that report
playback), `rehearsal.frame.done` {frame, tokens, waited_ms} of interaction sessions, whose complete frames wait for the
server's next tick, and `rehearsal.session.failed` {reason} when the engine ends one. Times and lengths on the wire are
whole ms; audio is mono little-endian 16-bit PCM in base64, 24 kHz out, 24 or 16 kHz in.
"""

from http import HTTPStatus
from typing import Any, Protocol

import msgspec

OVERLOADED = 1013
"""Close code: try again later. For rejected sessions."""

GOING_AWAY, GOING = 1001, "the server shuts down"
"""Close code and reason for all clients at shutdown."""


def played_tokens(text: int, frames: int) -> dict[str, int]:
    """Return the heard part of a reply, in the wire's words, whatever the names of its stages."""
    return {"thinker": text, "talker": frames}


class Outbox(Protocol):
    """The way to one client, which its socket implements and bounds."""

    def send(self, event: bytes) -> None:
        """Send one whole text message. Never blocks, and may be called after the connection is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the WebSocket after all earlier messages. Never blocks."""
        ...


class Incoming(msgspec.Struct):
    """All fields of client events that are read; msgspec checks their types."""

    type: str
    event_id: str | None = None
    audio: bytes | None = None
    session: dict[str, Any] | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    item_id: str | None = None
    response_id: str | None = None
    content_index: int = 0
    audio_end_ms: int | None = None
    played_ms: float = 0.0
    playing: bool = True
    done: bool = False
    frame: int | None = None
    output_tokens: int | None = None
    content: int | None = None
    ends_turn: bool | None = None
    reply: dict[str, Any] | None = None


class Refusal(Exception):
    """The error for a client's request that cannot be done; `code` as in OpenAI's errors, `param` names the field."""

    def __init__(self, message: str, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


_decode = msgspec.json.Decoder(Incoming).decode
encode = msgspec.json.Encoder().encode
"""Encodes an event as the bytes of a message."""


def error_body(status: HTTPStatus, message: str, code: str, param: str | None = None) -> bytes:
    """Return the body of a rejected HTTP request: of a bad one as vLLM's server has it, else as OpenAI's API."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    if status == HTTPStatus.BAD_REQUEST:
        error |= {"type": "BadRequestError", "code": status.value}
    return encode({"error": error})


def parse(message: str | bytes) -> Incoming:
    """Parse the client event of a message. Raises Refusal, which names the error."""
    try:
        return _decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # ValidationError is a DecodeError: JSON with a field of a wrong type.
        code = "invalid_value" if isinstance(error, msgspec.ValidationError) else "invalid_json"
        raise Refusal(f"this is no event of the Realtime API: {error}", code) from None
