"""Duplex sessions of vLLM-Omni, called as `rehearse live` calls any server."""

import asyncio
import base64
import json

from websockets.asyncio.client import connect

from harness.serving.omni_server import TONE, OmniServer


def test_a_duplex_session_answers_with_the_length_that_its_commit_says(liveserve: OmniServer):
    async def call() -> float:
        url = f"{liveserve.address.replace('http', 'ws')}/v1/realtime?duplex=1&autostart=0&model=qwen3-omni"
        sound_s = 0.0
        async with connect(url, max_size=None) as session:
            asked = {"modalities": ["audio", "text"], "turn_detection": None, "model": "qwen3-omni"}
            await session.send(json.dumps({"type": "session.update", "session": asked}))
            second = base64.b64encode(TONE).decode()
            append = {"type": "input_audio_buffer.append", "audio": second, "format": "pcm16"}
            await session.send(json.dumps({**append, "sample_rate_hz": 16_000}))
            lengths = json.dumps({"output_tokens": 20, "reply_audio_s": 6.0})
            commit = {"type": "input_audio_buffer.commit", "final": True, "create_response": True}
            await session.send(json.dumps({**commit, "event_id": lengths}))
            async with asyncio.timeout(60):
                async for message in session:
                    event = json.loads(message)
                    if event["type"] == "response.output_audio.delta":
                        sound_s += len(event["delta"]) * 3 / 4 / 48_000
                    elif event["type"] == "response.done":
                        break
        return sound_s

    assert round(asyncio.run(call()), 1) == 6.0
