"""The official `openai` Python client talks to our server over a real socket: its realtime types are the judge."""

import asyncio
import base64
import socket
from collections import Counter
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from engines.core import vllm_adapter
from engines.endpoint.build import build_sessions
from engines.endpoint.limits import Limits
from engines.endpoint.websocket_server import WebSocketServer
from engines.registry import ENGINES
from engines.server import ServerParams
from harness.clocks.clock import WallClockLoop
from tests.live.calls import OFFICIAL
from workloads.audio.synth import SyntheticClip

WITHIN_S = 60  # of real time: far beyond what any of this takes


def conversation(talk: Any, engine: str = "liveserve") -> Any:
    """Run `talk(connection)` with the official client against a server of `engine` on the wall clock."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        sessions = build_sessions(engine, ENGINES[engine].Params(), ServerParams(), 7)
        server = WebSocketServer(sessions.connect, Limits(), None, lambda server: (b"", "text/plain"))
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server.listen(listener)
        tasks = sessions.server.start()
        client = AsyncOpenAI(
            api_key="none",
            base_url=f"http://127.0.0.1:{port}/v1",
            websocket_base_url=f"ws://127.0.0.1:{port}/v1",
        )
        async with asyncio.timeout(WITHIN_S), client.realtime.connect(model="gpt-realtime") as connection:
            result = await talk(connection)
        await server.close()
        assert sessions.open == 0
        for task in tasks:
            task.cancel()
        return result

    with asyncio.Runner(loop_factory=WallClockLoop) as runner:
        return runner.run(main())


async def until(connection: Any, type: str, kept: list[Any]) -> Any:
    """Receive up to an event of `type`; every event fits the types that the client declares, to the letter."""
    while True:
        event = await connection.recv()
        kept.append(event)
        OFFICIAL.validate_python(event.to_dict(exclude_unset=True))
        assert event.type != "error", event
        if event.type == type:
            return event


@pytest.mark.parametrize("modality", ("audio", "text"))
def test_a_typed_turn(modality: str) -> None:
    async def talk(connection: Any) -> list[Any]:
        kept: list[Any] = []
        created = await until(connection, "session.created", kept)
        assert created.session.type == "realtime"
        await connection.session.update(session={"type": "realtime", "output_modalities": [modality]})
        await until(connection, "session.updated", kept)
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}
        await connection.conversation.item.create(item=item)
        await until(connection, "conversation.item.done", kept)
        await connection.response.create(response={"metadata": {"rehearsal": '{"output_tokens": 8}'}})
        await until(connection, "response.done", kept)
        return kept

    kept = conversation(talk)
    counts = Counter(event.type for event in kept)
    usage = kept[-1].response.usage
    assert kept[-1].response.status == "completed" and usage.output_token_details.text_tokens == 8
    if modality == "text":
        assert counts["response.output_text.delta"] == 8 and not counts["response.output_audio.delta"]
        text = "".join(event.delta for event in kept if event.type == "response.output_text.delta")
        assert kept[-1].response.output[0].content[0].text == text
    else:
        audio = b"".join(
            base64.b64decode(event.delta) for event in kept if event.type == "response.output_audio.delta"
        )
        assert len(audio) == 2 * 1920 * usage.output_token_details.audio_tokens
        assert np.abs(np.frombuffer(audio, "<i2")).max() > 3000


def test_a_spoken_turn_is_cut_and_truncated() -> None:
    clip = SyntheticClip(0).pcm(24_000)[:24_000]

    async def talk(connection: Any) -> list[Any]:
        kept: list[Any] = []
        await connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        )
        for begin in range(0, len(clip), 2400):
            pcm = clip[begin : begin + 2400].astype("<i2").tobytes()
            await connection.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())
        await connection.input_audio_buffer.commit()
        hint = '{"output_tokens": 200, "reply_audio_s": 60}'
        await connection.response.create(response={"metadata": {"rehearsal": hint}})
        delta = await until(connection, "response.output_audio.delta", kept)
        await connection.response.cancel()
        await connection.conversation.item.truncate(item_id=delta.item_id, content_index=0, audio_end_ms=100)
        await until(connection, "response.done", kept)
        if not any(event.type == "conversation.item.truncated" for event in kept):
            await until(connection, "conversation.item.truncated", kept)
        return kept

    kept = conversation(talk)
    [done] = [event.response for event in kept if event.type == "response.done"]
    assert done.status == "cancelled" and done.status_details.reason == "client_cancelled"
    assert 0 < done.usage.output_token_details.audio_tokens < 750
    assert done.output[0].status == "incomplete"


def test_the_server_hears_when_the_user_has_spoken() -> None:
    clip = np.concatenate([SyntheticClip(0).pcm(24_000)[:36_000], np.zeros(24_000, np.int16)])

    async def talk(connection: Any) -> list[Any]:
        kept: list[Any] = []
        for begin in range(0, len(clip), 4800):
            pcm = clip[begin : begin + 4800].astype("<i2").tobytes()
            await connection.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())
        await until(connection, "input_audio_buffer.speech_stopped", kept)
        await until(connection, "response.output_audio.delta", kept)
        await connection.response.cancel()
        await until(connection, "response.done", kept)
        return kept

    types = [event.type for event in conversation(talk)]
    wanted = ["speech_started", "speech_stopped", "committed"]
    assert [types.index(f"input_audio_buffer.{each}") for each in wanted] == sorted(
        types.index(f"input_audio_buffer.{each}") for each in wanted
    )


def test_what_the_server_does_not_know_comes_back_as_an_error_and_the_session_goes_on() -> None:
    async def talk(connection: Any) -> list[Any]:
        await connection.recv()
        await connection.response.cancel()
        error = await connection.recv()
        await connection.conversation.item.retrieve(item_id="item_x")
        unknown = await connection.recv()
        await connection.input_audio_buffer.clear()
        cleared = await connection.recv()
        return [error, unknown, cleared]

    error, unknown, cleared = conversation(talk)
    assert error.error.code == "response_cancel_not_active" and unknown.error.param == "type"
    assert cleared.type == "input_audio_buffer.cleared"


def test_frames_reach_the_client_as_text() -> None:
    async def talk(connection: Any) -> str:
        kept: list[Any] = []
        about = (await connection.recv()).session.rehearsal
        assert about["serves"] == "frames"
        pcm = base64.b64encode(bytes(2 * round(24_000 * about["frame_s"]))).decode()
        await connection.input_audio_buffer.append(audio=pcm)
        event = await until(connection, "response.output_text.delta", kept)
        return event.delta

    assert conversation(talk, "metronome")
