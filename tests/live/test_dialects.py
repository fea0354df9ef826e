"""What each dialect sends, which events it reads from messages, and how the dialect of a server is found."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.realtime import RealtimeClientEvent
from pydantic import TypeAdapter
from websockets.asyncio.server import serve

from harness.clocks import clock
from harness.live.endpoints.dialects import DIALECTS, detect, dialect_of
from harness.live.endpoints.dialects.audio_format import NOTHING, AudioFormat
from harness.live.endpoints.dialects.detect import resolve
from harness.live.endpoints.dialects.dialect import Cut, Dialect, with_query
from harness.live.endpoints.dialects.events import (
    Audio,
    AudioDone,
    Cleared,
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
from harness.live.endpoints.dialects.rtvi import message as rtvi_message
from harness.live.endpoints.target import OFFERS, TargetParams
from tests.live.scripted import spoken
from workloads.errors import UserError

URL = "ws://localhost:8000/v1/realtime"
TURN = spoken().sessions[0].turns[0]
CUT = Cut("resp_1", "item_1", 1.2345)
IN_JSON = [name for name, cls in DIALECTS.items() if cls.reader is Dialect.reader]
"""Dialects of OpenAI's events."""
REALTIME = ("openai", "rehearsal", "vllm_omni")


def dialect(name: str, **target: Any):
    model = {"model": "m"} if name == "vllm" else {}
    url = f"http{URL.removeprefix('ws')}" if name in OFFERS else URL
    return dialect_of(TargetParams(url=url, dialect=name, **{**model, **target}))  # type: ignore[arg-type]


def decoded(messages: list[bytes] | str) -> list[dict[str, Any]]:
    assert not isinstance(messages, str)
    return [json.loads(message) for message in messages]


def message(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def test_every_message_of_the_openai_dialect_is_valid_for_openais_own_client():
    read = TypeAdapter(RealtimeClientEvent).validate_json
    for target in ({}, {"turn_detection": "server"}, {"modalities": "text", "voice": "alloy"}, {"hint": True}):
        spoken = dialect("openai", **target)
        sent = [*spoken.hello(), spoken.append(b"\1\2" * 480), *spoken.end_of_turn(TURN)]
        sent += [*spoken.interrupt(CUT), *spoken.typed_turn(TURN, "some words")]
        for data in sent:
            understood = json.loads(read(data).model_dump_json(exclude_unset=True))  # type: ignore[attr-defined]
            assert understood == json.loads(data)


def test_a_server_of_ours_is_asked_for_the_length_of_its_reply():
    turn = replace(TURN, visual_tokens=3, content=12)
    length = {"output_tokens": 7, "reply_audio_s": 0.3, "visual_tokens": 3, "input_tokens": 5, "content": 12}
    for name, target, expected in (
        ("rehearsal", {}, length),
        ("openai", {"hint": True}, length),
        ("rehearsal", {"modalities": "text"}, {**length, "reply_audio_s": None}),
    ):
        create = decoded(dialect(name, **target).end_of_turn(turn))[-1]
        assert json.loads(create["response"]["metadata"]["rehearsal"]) == expected
    assert decoded(dialect("openai").end_of_turn(turn))[-1] == {"type": "response.create"}


CANCEL, TRUNCATE, PLAYBACK = "response.cancel", "conversation.item.truncate", "rehearsal.playback"


@pytest.mark.parametrize(
    ("name", "cut", "complete", "server_vad"),
    [
        ("openai", [CANCEL, TRUNCATE], [TRUNCATE], [TRUNCATE]),
        ("rehearsal", [PLAYBACK, CANCEL], [PLAYBACK, CANCEL], [PLAYBACK]),
        ("vllm_omni", ["playback.ack", CANCEL], ["playback.ack", "output_audio_buffer.clear"], ["playback.ack"]),
    ],
)
def test_an_interruption_is_these_messages(name: str, cut: list[str], complete: list[str], server_vad: list[str]):
    def kinds(at: Cut = CUT, **target: Any) -> list[str]:
        return [event["type"] for event in decoded(dialect(name, **target).interrupt(at))]

    assert kinds() == cut
    assert kinds(CUT._replace(done=True)) == complete
    assert kinds(turn_detection="server") == server_vad


def test_playback_is_reported_where_the_server_reads_it():
    [ours] = decoded(dialect("rehearsal").ack(CUT, playing=True))
    played = {"response_id": "resp_1", "played_ms": 1234.5, "playing": True, "done": False}
    assert ours == {"type": PLAYBACK, **played}
    [omni] = decoded(dialect("vllm_omni").ack(Cut("resp_1", None, 0.5), playing=True))
    assert (omni["item_id"], omni["played_ms"]) == ("item_resp_1", 500)
    assert dialect("openai").ack(CUT, playing=True) == []
    assert dialect("rehearsal").ack(Cut(None, None, 0.5), playing=True) == []  # the server named no reply


@pytest.mark.parametrize(
    ("name", "target", "typed", "reason"),
    [
        ("vllm", {"model": None}, False, "model"),
        ("vllm", {"turn_detection": "server"}, False, "turn_detection=client"),
        ("vllm", {}, True, "typed"),
        ("sglang_omni", {"turn_detection": "client"}, False, "turn_detection=client; take turn_detection=server"),
        ("rtvi", {"voice": "v"}, False, "voice is the server's own; leave it out"),
    ],
)
def test_a_dialect_refuses_settings_that_its_servers_lack(name: str, target: dict, typed: bool, reason: str):
    assert reason in (dialect(name, **target).cannot(typed=typed) or "")


def test_the_url_has_the_model_and_what_the_dialect_asks_for():
    assert dialect("openai", model="gpt x").url() == f"{URL}?model=gpt+x"
    assert dialect("openai").url() == dialect("rehearsal").url() == dialect("vllm").url() == URL
    assert dialect("vllm_omni", model="q").url() == f"{URL}?duplex=1&model=q&autostart=0"
    assert with_query(f"{URL}?model=mine&a=", model="other", b="c") == f"{URL}?model=mine&a=&b=c"


def test_a_token_goes_into_the_headers_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MINE", "opensesame")
    for name in DIALECTS:
        spoken = dialect(name, token_env="MINE")
        key = {"x-goog-api-key": "opensesame"}
        assert spoken.headers() == (key if name == "gemini" else {"Authorization": "Bearer opensesame"})
        assert "opensesame" not in repr(spoken) + spoken.url() + str(spoken.hello())
    monkeypatch.delenv("MINE")
    monkeypatch.delenv("REHEARSAL_TOKEN", raising=False)
    assert dialect("openai").headers() == {}


PCM = base64.b64encode(bytes(960)).decode()
DETAILS = {"output_token_details": {"text_tokens": 4, "audio_tokens": 9}}


def done(about: dict[str, Any] | None = None, **response: Any) -> bytes:
    return message("response.done", response={"id": "r", **response}, **about or {})


def delta(kind: str, **fields: Any) -> bytes:
    return message(f"response.{kind}.delta", **fields)


HEARD = {"thinker": 1, "talker": 2}


EVENTS: list[tuple[bytes, Event]] = [
    (message("response.created", response={"id": "r"}), Started("r")),
    (delta("output_audio", response_id="r", item_id="i", delta=PCM), Audio("r", "i", 960, NOTHING, PCM)),
    (delta("output_audio", audio=PCM, sample_rate_hz=16000), Audio(None, None, 960, AudioFormat(None, 16000), PCM)),
    (delta("audio", response_id="r", delta=PCM), Audio("r", None, 960, NOTHING, PCM)),
    (delta("output_audio_transcript", response_id="r", delta="abc"), Text("r", 1, 3)),
    (delta("output_text", response_id="r", delta="ü", tokens=4), Text("r", 4, 1)),
    (delta("text", response_id="r", delta="abc"), Text("r", 1, 3)),
    (message("transcription.delta", delta="abc"), Text(None, 1, 3)),
    (message("transcription.done", text="abc", usage={"completion_tokens": 5}), Done(None, "transcribed", 5)),
    (message("response.output_audio.done", response_id="r"), AudioDone("r")),
    (done(status="completed", usage=DETAILS), Done("r", "completed", 4, 9)),
    (done(status="cancelled", rehearsal={"heard": HEARD}), Done("r", "cancelled", played=(1, 2))),
    (done(status="failed", status_details={"error": {"code": "c"}}), Done("r", "failed", reason="c")),
    (done({"server_event_seq": 7}, usage={"output_tokens": 9}), Done("r", "completed", number=7)),
    (message("rehearsal.heard", response_id="r", heard=HEARD), TokensPlayed("r", (1, 2))),
    (message("output_audio_buffer.cleared", response_id="r"), Cleared("r")),
    (message("rehearsal.frame.done", frame=3, tokens=8), FrameDone(3, 8)),
    (message("rehearsal.frame.done", frame=3, tokens=8, waited_ms=1486), FrameDone(3, 8, 1.486)),
    (message("rehearsal.session.failed", reason="full"), Failure("session failed", "full")),
    (message("input_audio_buffer.speech_started"), SpeechStarted()),
    (message("input_audio_buffer.speech_stopped"), SpeechStopped()),
    (message("error", error={"type": "t", "code": "c", "message": "m", "event_id": "e"}), Failure("c", "m", "e")),
    (message("error", error={"type": "t", "code": None, "message": "m"}), Failure("t", "m")),
    (message("error", error="Unknown event", code="unknown"), Failure("unknown", "Unknown event")),
    (message("an.event.of.tomorrow", delta={"not": "text"}), Other()),
    (delta("output_audio", delta=5), Garbage()),
    (message("response.done", response=7), Garbage()),
    (message("response.cancelled", response={"id": "r"}), Done("r", "cancelled")),
    (done(status_details="none", usage={"output_token_details": 7}), Done("r", "completed")),
    (done(status="incomplete", status_details={"reason": "long", "error": 5}), Done("r", "incomplete", reason="long")),
    (delta("output_audio_transcript", response_id="r", delta="\ud83d", tokens="x"), Text("r", 1, 1)),
    (delta("output_audio", response_id="r", delta=PCM, channels={}, format=[]), Audio("r", None, 960, NOTHING, PCM)),
    (delta("function_call_arguments", response_id="r", delta="{", item_id="i"), Text("r", 1, 1, "i")),
    (message("response.output_item.added", response_id="r", item={"id": "i"}), Item("r", "i")),
    (delta("output_audio", response_id="r", delta=PCM, format="opus"), UnreadAudio("r", AudioFormat("opus"))),
    (b'{"delta":"a"}', Garbage()),
    (b'{"error":{"code":500,"message":"oh"}}', Failure("500", "oh")),
    (b'{"detail":"Not Found"}', Failure("unknown", "Not Found")),
    (b"", Garbage()),
    (b'{"type":"response.created"', Garbage()),
]


@pytest.mark.parametrize(("data", "event"), EVENTS)
def test_a_message_is_read_as_its_event(data: bytes, event: Event):
    for name in IN_JSON:
        assert dialect(name).reader()(data) == event


@pytest.mark.parametrize("name", IN_JSON)
def test_a_session_is_ready_with_the_format_that_it_states(name: str):
    first = "session.created" if name in ("vllm", "vllm_omni") else "session.updated"
    format = {"type": "audio/pcm", "rate": 16000}
    session = {"audio": {"output": {"format": format}}, "rehearsal": {"serves": "frames"}}
    assert dialect(name).reader()(message(first, id="sess-1")) == Ready()
    assert dialect(name).reader()(message(first, session=session)) == Ready(AudioFormat("pcm", 16000), "frames")
    assert dialect(name).reader()(message(first, session={"audio": "of another shape"})) == Ready()
    if first == "session.updated":
        assert dialect(name).reader()(message("session.created", session={})) == Greeted()


def resolved(hello: bytes | int | None, status: int | None = None, **target: Any) -> TargetParams:
    """The target as found out at a server that sends `hello`, closes with that code, or refuses with `status`."""

    async def main() -> TargetParams:
        async def handler(socket: Any) -> None:
            if isinstance(hello, int):
                await socket.close(hello)
            elif hello is not None:
                await socket.send(hello.decode())
            await socket.wait_closed()

        def refuse(socket: Any, request: Any) -> Any:
            return None if status is None else socket.respond(status, "no")

        async with serve(handler, "127.0.0.1", 0, process_request=refuse) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await resolve(TargetParams(url=url, **target))

    return clock.run(main(), virtual=False)


@pytest.mark.parametrize(
    ("hello", "name"),
    [
        (message("session.created", id="sess-1", created=3), "vllm"),
        (message("session.created", session={"type": "realtime"}), "openai"),
        (message("session.created", session={"type": "realtime", "rehearsal": {"version": 1}}), "rehearsal"),
        (message("session.created", session={"capabilities": {}, "modalities": ["text"]}), "sglang_omni"),
        (message("session.created", session={"capabilities": {}, "playback_commit_policy": "ack_only"}), "vllm_omni"),
        (message("session.created", session={"sglang": {"granted": None}}), "sglang_duplex"),
    ],
)
def test_the_greeting_of_a_server_tells_its_dialect(hello: bytes | None, name: str):
    assert resolved(hello).dialect == name


def test_a_server_that_does_not_greet_is_tried_in_each_dialect(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(detect, "HELLO_S", 0.1)
    ready = rtvi_message("bot-ready", {"version": "1"})

    async def omni(socket: Any) -> None:
        async for data in socket:
            if isinstance(data, str) and "session.update" in data:
                await socket.send(message("session.created", session={}).decode())

    async def bot(socket: Any) -> None:
        async for data in socket:
            if isinstance(data, bytes):
                await socket.send(ready)
            else:
                await socket.close()

    async def main(handler: Any) -> str:
        async with serve(handler, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return (await resolve(TargetParams.model_validate({"url": url}))).dialect

    assert [clock.run(main(handler), virtual=False) for handler in (omni, bot)] == ["vllm_omni", "rtvi"]


@pytest.mark.parametrize(
    ("hello", "status", "sentence"),
    [
        (message("welcome"), None, "greets with 'welcome'"),
        (b"hello", None, "greets with 'no event'"),
        (1013, None, "closes new connections with code 1013"),
        (None, 401, "wants a token or key, and none is sent .HTTP status 401.; put it into an environment variable"),
        (
            None,
            None,
            r"says nothing by itself for 0.1 s, and begins no session when it is spoken to in vllm_omni .nothing. or "
            r"rtvi .nothing.; name its dialect with --dialect .openai, rehearsal, vllm, sglang_omni, sglang_duplex.",
        ),
        (None, 404, "opens no WebSocket there .HTTP status 404.*correct the path"),
        (None, 500, "opens no WebSocket there .HTTP status 500"),
    ],
)
def test_a_target_without_a_known_dialect_is_refused_with_the_reason(
    hello: Any, status: int | None, sentence: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(detect, "HELLO_S", 0.1 if hello is None else 1.5)
    monkeypatch.setattr(detect, "BEGIN_S", 0.1)
    monkeypatch.delenv("REHEARSAL_TOKEN", raising=False)
    with pytest.raises(UserError, match=sentence):
        resolved(hello, status)


def test_a_target_where_nobody_listens_is_refused():
    target = TargetParams.model_validate({"url": "ws://127.0.0.1:9/v1/realtime", "connect_timeout_s": 2.0})
    with pytest.raises(UserError, match="start the server, or correct the url"):
        clock.run(resolve(target), virtual=False)
