"""Gemini Live: calls with a server written from the public event reference (ai.google.dev/api/live)."""

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest

from harness.live.endpoints.conformance import check_dialect
from harness.live.endpoints.dialects import dialect_of, known_at
from harness.live.endpoints.dialects.audio_format import AudioFormat
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
from harness.live.endpoints.target import TargetParams
from tests.live.scripted import PIECES, Peer, play, spoken, table, tone

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
RATE = 24_000
GEMINI: dict[str, Any] = {"dialect": "gemini", "model": "live-1", "path": PATH}


def say(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def content(**fields: Any) -> bytes:
    return say(serverContent=fields)


def part(pcm: bytes, mime_type: str = f"audio/pcm;rate={RATE}") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime_type, "data": b64encode(pcm).decode()}}


def audio(pcm: bytes) -> bytes:
    return content(modelTurn={"parts": [part(pcm)]})


READY, COMPLETE, OVER = say(setupComplete={}), content(generationComplete=True), content(turnComplete=True)
EXHAUSTED = say(error={"code": 8, "message": "quota exceeded", "status": "RESOURCE_EXHAUSTED"})


class Live:
    """Its messages. Implements `harness.live.endpoints.conformance.Server`."""

    rate = RATE

    def ready(self) -> list[bytes]:
        return [READY]

    def begin(self, reply: int) -> list[bytes]:
        return []

    def audio(self, reply: int, pcm: bytes) -> list[bytes]:
        return [audio(pcm)]

    def text(self, reply: int) -> list[bytes]:
        return [content(modelTurn={"parts": [{"text": "word "}]})]

    def end(self, reply: int) -> list[bytes]:
        return [COMPLETE, OVER]

    def cut(self, reply: int) -> list[bytes]:
        return [content(interrupted=True), OVER]

    def error(self) -> list[bytes]:
        return [EXHAUSTED]


def target(url: str, **more: Any) -> TargetParams:
    return TargetParams.model_validate({"url": url, "dialect": "gemini", "model": "m", **more})


def gemini(url: str) -> Dialect:
    return dialect_of(target(url))


@pytest.mark.parametrize("detection", ["server", "client"])
def test_gemini_keeps_the_promises_of_a_dialect(detection: str) -> None:
    check_dialect(target(f"ws://127.0.0.1:9{PATH}", turn_detection=detection), Live())


def test_the_setup_has_the_chosen_settings_and_the_key_is_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "opensesame")
    url = f"wss://generativelanguage.googleapis.com{PATH}"
    fields = {"model": "live-1", "voice": "Kore", "silence_duration_ms": 300, "token_env": "GEMINI_API_KEY"}
    own = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "generationConfig": {"temperature": 0}}
    dialect = dialect_of(target(url, session=own, **fields))
    [setup] = [json.loads(message)["setup"] for message in dialect.opening()]
    assert known_at(url) == "gemini" and dialect.cannot(typed=True) is None
    assert dialect.headers() == {"x-goog-api-key": "opensesame"}
    assert setup["model"] == "models/live-1" and setup["systemInstruction"] == own["systemInstruction"]
    assert setup["realtimeInputConfig"] == {"automaticActivityDetection": {"disabled": False, "silenceDurationMs": 300}}
    generation = setup["generationConfig"]
    assert generation["responseModalities"] == ["AUDIO"] and generation["temperature"] == 0
    assert generation["speechConfig"] == {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}}


def test_a_reply_is_read_from_its_parts() -> None:
    read = gemini("ws://h/").reader()
    thought = {"text": "The user wants", "thought": True}
    both = read(content(modelTurn={"parts": [thought, {"text": "word "}, part(bytes(480))]}, turnComplete=True))
    sound = Audio("reply-1", None, 480, AudioFormat("pcm", RATE), b64encode(bytes(480)).decode())
    assert both == Several((Text("reply-1", 1, 5), sound, Done("reply-1", "completed")))
    assert read(OVER) == Other()  # it has ended
    assert isinstance(read(audio(bytes(2))), Audio)
    assert read(content(interrupted=True)) == Done("reply-2", "cancelled")


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (READY, Ready()),
        (say(goAway={"timeLeft": "10s"}), Leaves()),
        (COMPLETE, Other()),  # of no reply
        (content(interrupted=True), Other()),
        (content(outputTranscription={"text": "late"}), Other()),
        (say(toolCall={"functionCalls": [{"id": "c1", "name": "now"}]}), ToolCall((("c1", "now"),))),
        (content(modelTurn={"parts": [part(b"", "audio/opus")]}), UnreadAudio("reply-1", AudioFormat("opus"))),
        (EXHAUSTED, Failure("RESOURCE_EXHAUSTED", "quota exceeded")),
        (b"[]", Garbage()),
        (say(serverContent=7), Garbage()),
        (say(usageMetadata={}), Other()),
    ],
)
def test_a_message_outside_a_reply_is_read_as_its_event(message: bytes, event: Event) -> None:
    assert gemini("ws://h/").reader()(message) == event


async def heard(peer: Peer) -> dict[str, Any]:
    """The next message; its type is the name of its field."""
    message = json.loads(await peer.socket.recv())
    [kind] = message
    peer.call.received.append({"type": kind, **message[kind]})
    return peer.call.received[-1]


async def heard_out(peer: Peer) -> None:
    """Hear until the client hangs up."""
    while True:
        await heard(peer)


async def begun(peer: Peer) -> None:
    assert (await heard(peer))["model"] == "models/live-1"
    await peer.socket.send(READY)


async def turn_heard(peer: Peer) -> None:
    """Hear speech, and then silence, as its VAD does."""
    speaking = False
    while True:
        message = await heard(peer)
        speech = any(b64decode(message.get("audio", {}).get("data", "")))
        if speaking and not speech:
            return
        speaking = speech


async def answers(peer: Peer) -> None:
    for packet in [tone(0.1)] * 3:
        await peer.socket.send(audio(packet))
    await peer.socket.send(content(outputTranscription={"text": "words"}))
    for message in (COMPLETE, OVER):
        await peer.socket.send(message)


def test_a_tool_call_of_the_server_is_answered_and_the_turn_goes_on() -> None:
    async def server(peer: Peer) -> None:
        await begun(peer)
        await turn_heard(peer)
        await peer.socket.send(say(toolCall={"functionCalls": [{"id": "c1", "name": "weather", "args": {}}]}))
        while (await heard(peer))["type"] != "toolResponse":
            pass
        await answers(peer)
        await heard_out(peer)

    out = play(spoken(), server, **GEMINI)
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"]
    assert out.values("audio") == [0.1] * 3 and len(out.values("first_text")) == 1
    [call] = out.calls
    [response] = call.of("toolResponse")
    assert response["functionResponses"] == [{"id": "c1", "name": "weather", "response": {"result": "ok"}}]
    assert call.path == PATH and len(call.of("realtimeInput")) > PIECES


def test_after_go_away_the_next_turn_is_a_new_connection() -> None:
    async def server(peer: Peer) -> None:
        await begun(peer)
        await turn_heard(peer)
        await answers(peer)
        await peer.socket.send(say(goAway={"timeLeft": "5s"}))
        await heard_out(peer)

    out = play(spoken(turns=2), server, **GEMINI)
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert len(out.calls) == 2 and all(call.kinds[0] == "setup" for call in out.calls)
