"""Our server and the official `openai` client over a socket: every event fits the types that the client declares."""

import base64
from typing import Any

import numpy as np

from tests.live.calls import OFFICIAL
from tests.live.served import served
from tests.waiting import in_a_loop


async def until(connection: Any, type: str) -> list[Any]:
    """Receive up to an event of `type`; every event fits the types that the client declares, to the letter."""
    events: list[Any] = []
    while not events or events[-1].type != type:
        events.append(await connection.recv())
        OFFICIAL.validate_python(events[-1].to_dict(exclude_unset=True))
        assert events[-1].type != "error", events[-1]
    return events


@in_a_loop
async def test_the_official_client_gets_speech_for_a_typed_turn() -> None:
    async with (
        served("liveserve", deployment="qwen3_omni_2gpu") as server,
        server.client() as client,
        client.realtime.connect(model="gpt-realtime") as connection,
    ):
        [created] = await until(connection, "session.created")
        assert created.session.type == "realtime"
        await connection.session.update(session={"type": "realtime", "output_modalities": ["audio"]})
        await until(connection, "session.updated")
        item: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}
        await connection.conversation.item.create(item=item)
        await until(connection, "conversation.item.done")
        await connection.response.create(response={"metadata": {"rehearsal": '{"output_tokens": 8}'}})
        events = await until(connection, "response.done")
    done, usage = events[-1].response, events[-1].response.usage
    assert done.status == "completed" and usage.output_token_details.text_tokens == 8
    sound = b"".join(base64.b64decode(e.delta) for e in events if e.type == "response.output_audio.delta")
    assert len(sound) == 2 * 1920 * usage.output_token_details.audio_tokens  # 80 ms at 24 kHz a token, 2 bytes a sample
    assert np.abs(np.frombuffer(sound, "<i2")).max() > 3000


@in_a_loop
async def test_the_official_client_gets_text_for_a_frame() -> None:
    async with (
        served("metronome", deployment="qwen3_omni_2gpu") as server,
        server.client() as client,
        client.realtime.connect(model="gpt-realtime") as connection,
    ):
        about = (await connection.recv()).session.rehearsal  # type: ignore[union-attr]
        assert about["serves"] == "frames"
        pcm = base64.b64encode(bytes(2 * round(24_000 * about["frame_s"]))).decode()
        await connection.input_audio_buffer.append(audio=pcm)
        assert (await until(connection, "response.output_text.delta"))[-1].delta
