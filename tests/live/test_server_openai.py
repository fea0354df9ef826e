"""The official `openai` Python client talks to our server over a real socket: its realtime types are the judge."""

import base64
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.live.calls import OFFICIAL
from tests.live.served import served
from tests.waiting import run


def conversation(talk: Any, engine: str = "liveserve") -> Any:
    """Run `talk(connection)` with the official client against a server of `engine` on the wall clock."""

    async def main() -> Any:
        async with (
            served(engine, deployment="qwen3_omni_2gpu") as server,
            server.client() as client,
            client.realtime.connect(model="gpt-realtime") as connection,
        ):
            return await talk(connection)

    return run(main())


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
        audio = b"".join(base64.b64decode(event.delta) for event in kept if event.type == "response.output_audio.delta")
        assert len(audio) == 2 * 1920 * usage.output_token_details.audio_tokens
        assert np.abs(np.frombuffer(audio, "<i2")).max() > 3000


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
