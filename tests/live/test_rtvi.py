"""Pipecat's RTVI over a WebSocket: our frames are read by protobuf, and a scripted bot has a call."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.audio_format import AudioFormat
from harness.live.endpoints.dialects.events import Audio, Done, Failure, Garbage, Other, Ready, Started, Text
from harness.live.endpoints.dialects.rtvi import message
from harness.live.endpoints.target import TargetParams
from tests.live.scripted import PIECES, Peer, play, spoken, table, wav

pytest.importorskip("google.protobuf", reason="frames are checked against protobuf's own")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FRAMES = {
    "AudioRawFrame": "id=1 uint64, name=2 string, audio=3 bytes, sample_rate=4 uint32, num_channels=5 uint32",
    "MessageFrame": "data=1 string",
    "InterruptionFrame": "id=1 uint64, name=2 string",
    "Frame": "audio=2 AudioRawFrame, message=4 MessageFrame, interruption=5 InterruptionFrame",
}
"""The fields of pipecat-ai 1.14's frames.proto that a caller meets: name, number, type."""


def _frame_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="rtvi_test.proto", package="rtvi_test", syntax="proto3")
    for name, fields in FRAMES.items():
        kind = file.message_type.add(name=name)
        for field in fields.split(", "):
            word, type = field.split()
            called, number = word.split("=")
            of: dict[str, Any] = {"type": f"TYPE_{type.upper()}"}
            if not type.islower():
                of = {"type": "TYPE_MESSAGE", "type_name": f".rtvi_test.{type}"}
            kind.field.add(name=called, number=int(number), label="LABEL_OPTIONAL", **of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("rtvi_test.Frame"))


Frame = _frame_class()
OURS = dialect_of(TargetParams.model_validate({"url": "ws://h/ws", "dialect": "rtvi"}))


def rtvi(kind: str, data: Any = None) -> bytes:
    body = {"label": "rtvi-ai", "type": kind, **({} if data is None else {"data": data})}
    return Frame(message={"data": json.dumps(body)}).SerializeToString()


def sound(seconds: float = 0.1, rate: int = 24_000) -> bytes:
    audio = {"audio": bytes(2 * round(seconds * rate)), "sample_rate": rate, "num_channels": 1, "id": 70_000}
    return Frame(audio=audio).SerializeToString()


@settings(deadline=None)
@given(st.binary(max_size=700), st.text(max_size=300))
def test_protobuf_reads_our_frames(pcm: bytes, text: str) -> None:
    audio = Frame.FromString(OURS.append(pcm)).audio
    assert (audio.audio, audio.sample_rate, audio.num_channels) == (pcm, 16_000, 1)
    body = json.loads(Frame.FromString(message("send-text", {"content": text})).message.data)
    assert body["label"] == "rtvi-ai" and body["data"] == {"content": text} and body["id"]


def test_a_bot_s_frames_are_read() -> None:
    read = OURS.reader()
    assert read(rtvi("bot-ready", {"version": "2.2.0", "about": {"library": "p"}})) == Ready()
    assert read(rtvi("metrics", {"ttfb": [{"processor": "p", "value": 0.3}]})) == Other()
    assert read(rtvi("bot-stopped-speaking")) == Other(), "of nothing that began"
    assert read(rtvi("bot-llm-started")) == Started("reply-1")
    assert read(rtvi("bot-llm-text", {"text": "words"})) == Text("reply-1", 1, 5)
    assert read(rtvi("bot-started-speaking")) == Other(), "the same reply"
    assert read(sound(0.1)) == Audio("reply-1", None, 4800, AudioFormat("pcm", 24_000, 1), bytes(4800))
    assert read(rtvi("bot-interrupted")) == Done("reply-1", "cancelled")
    assert read(rtvi("bot-stopped-speaking")) == Other(), "it was cut already"
    assert read(rtvi("bot-started-speaking")) == Started("reply-2")
    assert read(Frame(interruption={"id": 1}).SerializeToString()) == Done("reply-2", "cancelled")
    assert read(rtvi("error", {"error": "gone", "fatal": True})) == Failure("bot", "gone")
    assert read(rtvi("error", {"error": "hm", "fatal": False})) == Other()
    assert read(rtvi("bot-llm-text", 7)) == Other()
    assert read(b"") == read(b"\x22") == Garbage()


def test_an_audio_frame_may_be_a_wav() -> None:
    content = wav(bytes(3200), 16_000, size=3200)
    event = OURS.reader()(Frame(audio={"audio": content, "sample_rate": 16_000}).SerializeToString())
    assert isinstance(event, Audio) and event.seconds == 0.1


async def bot(peer: Peer) -> None:
    """Says hello, hears until two pieces of silence, and answers."""

    async def hear() -> Any:
        data = await peer.socket.recv()
        assert isinstance(data, bytes), "frames are binary"
        frame = Frame.FromString(data)
        peer.call.received.append({"type": "audio" if frame.HasField("audio") else "message"})
        return frame

    ready = json.loads((await hear()).message.data)
    assert ready["type"] == "client-ready" and ready["data"]["version"].split(".")[0] == "2"
    await peer.socket.send(rtvi("bot-ready", {"version": "2.2.0"}))
    speaking = False
    while True:
        speech = any((await hear()).audio.audio)
        if speech and not speaking:
            await peer.socket.send(rtvi("user-started-speaking"))
        if speaking and not speech:
            begun = rtvi("user-stopped-speaking"), rtvi("bot-llm-started"), rtvi("bot-llm-text", {"text": "word"})
            voiced = rtvi("bot-started-speaking"), *3 * [sound()], rtvi("bot-stopped-speaking")
            for each in (*begun, *voiced):
                await peer.socket.send(each)
        speaking = speech


def test_a_call_with_a_scripted_rtvi_bot() -> None:
    out = play(spoken(turns=2), bot, path="/ws", dialect="rtvi")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6
    assert out.values("silent_reply") == [-120.0] * 2, "of zeros"
    [call] = out.calls
    assert call.path == "/ws" and len(call.of("audio")) > 2 * PIECES
