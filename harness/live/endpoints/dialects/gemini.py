"""Google's Gemini Live API, BidiGenerateContent (ai.google.dev/api/live).

JSON messages, each with one field that names it; the server's are binary frames. 16 kHz in; each packet states the rate
of the answer. The server's VAD ends turns and cuts replies, or with turn_detection=client the client's activity
signals do. Replies have no ids. A reply is complete when its generation is.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from harness.live.endpoints.dialects.audio_format import length, named
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import (
    Audio,
    Done,
    Event,
    Failure,
    Garbage,
    Leaves,
    Other,
    Ready,
    Several,
    Text,
    ToolCall,
    UnreadAudio,
)
from workloads.trace import Turn

KEY_HEADER = "x-goog-api-key"
TOOL_RESULT = {"result": "ok"}
"""The client's answer to each call of a tool: it runs none. [chosen]"""
_MOST_PARTS = 64
"""Parts that are read of one message. [chosen]"""


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Gemini(Dialect):
    """Gemini's protocol. `--session` has fields of the setup, such as tools and systemInstruction."""

    name: ClassVar[str] = "gemini"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "setupComplete"
    turn_detection: ClassVar[tuple[str, ...]] = ("server", "client")
    speech_stops: ClassVar[bool] = False
    needs_model: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("setup",)

    @classmethod
    def at(cls, url: str) -> bool:
        return urlsplit(url).path.endswith(".BidiGenerateContent")

    def headers(self) -> dict[str, str]:
        """Return the headers of the handshake: a key has one of its own."""
        headers, token = self.target.request_headers(), self.target.token()
        if headers.get("Authorization") == f"Bearer {token}":
            headers[KEY_HEADER] = headers.pop("Authorization").removeprefix("Bearer ")
        return headers

    def hello(self) -> list[bytes]:
        target = self.target
        generation: dict[str, Any] = {"responseModalities": [target.modalities.upper()]}
        if target.voice is not None:
            voice = {"prebuiltVoiceConfig": {"voiceName": target.voice}}
            generation["speechConfig"] = {"voiceConfig": voice}
        detection: dict[str, Any] = {"disabled": not self.server_vad}
        if target.silence_duration_ms is not None:
            detection["silenceDurationMs"] = target.silence_duration_ms
        model = target.model if "/" in (target.model or "") else f"models/{target.model}"
        setup = {
            "model": model,
            "generationConfig": generation,
            "realtimeInputConfig": {"automaticActivityDetection": detection},
        }
        return [_json(setup=setup)]

    def append(self, pcm: bytes) -> bytes:
        audio = b'{"realtimeInput":{"audio":{"mimeType":"audio/pcm;rate=%d","data":"%s"}}}'
        return audio % (self.input_rate, b64encode(pcm))

    def begin_of_turn(self) -> list[bytes]:
        """Return the begin of the user's activity, which also cuts a reply."""
        return [] if self.server_vad else [_json(realtimeInput={"activityStart": {}})]

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return [] if self.server_vad else [_json(realtimeInput={"activityEnd": {}})]

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        content = {"role": "user", "parts": [{"text": text}]}
        return [_json(clientContent={"turns": [content], "turnComplete": True})]

    def answer(self, event: Event) -> list[bytes]:
        if not isinstance(event, ToolCall):
            return []
        results = [{"id": id, "name": name, "response": TOOL_RESULT} for id, name in event.calls]
        return [_json(toolResponse={"functionResponses": results})]

    def missing(self, begun: bool, spoke: bool) -> str:
        return "serverContent.generationComplete" if spoke else "serverContent.modelTurn"

    def reader(self) -> Callable[[bytes], Event]:
        return _Reader()


class _Fields(msgspec.Struct, rename="camel"):
    """Fields by Google's names."""


class _Blob(_Fields):
    data: str = ""
    mime_type: str = "audio/pcm"


class _Part(_Fields):
    text: str = ""
    thought: bool = False
    inline_data: _Blob | None = None


class _ModelTurn(_Fields):
    parts: list[_Part] = []


class _Transcript(_Fields):
    text: str = ""


class _Content(_Fields):
    model_turn: _ModelTurn | None = None
    output_transcription: _Transcript | None = None
    generation_complete: bool = False
    turn_complete: bool = False
    interrupted: bool = False


class _Call(_Fields):
    id: str = ""
    name: str = ""


class _ToolCall(_Fields):
    function_calls: list[_Call] = []


class _Status(_Fields):
    """A google.rpc.Status, as gateways and test servers send it; Google's own server closes the connection."""

    status: str = ""
    message: str = ""


class _Message(_Fields):
    setup_complete: dict[str, Any] | None = None
    server_content: _Content | None = None
    tool_call: _ToolCall | None = None
    go_away: dict[str, Any] | None = None
    error: _Status | None = None


_decode = msgspec.json.Decoder(_Message).decode


class _Reader:
    """The reader of one session. Replies are numbered here, and one is open from its first part to its end."""

    def __init__(self) -> None:
        self._replies = 0
        self._open = False

    def __call__(self, data: bytes) -> Event:
        try:
            message = _decode(data)
            if message.server_content is not None:
                events = tuple(self._content(message.server_content))
                return events[0] if len(events) == 1 else Several(events) if events else Other()
        except (ValueError, RecursionError, msgspec.DecodeError):
            return Garbage()
        if message.setup_complete is not None:
            return Ready()
        if message.error is not None:
            return Failure(message.error.status or "unknown", message.error.message)
        if message.tool_call is not None:
            calls = message.tool_call.function_calls[:_MOST_PARTS]
            return ToolCall(tuple((call.id, call.name) for call in calls))
        return Leaves() if message.go_away is not None else Other()

    def _content(self, content: _Content) -> Iterator[Event]:
        for part in content.model_turn.parts[:_MOST_PARTS] if content.model_turn is not None else ():
            if part.inline_data is not None:
                blob, format = part.inline_data, named(part.inline_data.mime_type)
                id = self._begun()
                if format.unread:
                    yield UnreadAudio(id, format)
                else:
                    yield Audio(id, None, length(blob.data), format, blob.data)
            elif part.text and not part.thought:
                yield Text(self._begun(), 1, len(part.text))
        if content.output_transcription is not None and content.output_transcription.text and self._open:
            yield Text(self._begun(), 1, len(content.output_transcription.text))
        if self._open and (content.interrupted or content.generation_complete or content.turn_complete):
            self._open = False
            yield Done(f"reply-{self._replies}", "cancelled" if content.interrupted else "completed")

    def _begun(self) -> str:
        """Return the id of the open reply, which begins now unless one is open."""
        self._replies += not self._open
        self._open = True
        return f"reply-{self._replies}"
