"""Duplex sessions of vLLM-Omni, called as `rehearse live` calls any server."""

import asyncio
import base64
import json
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from harness.serving.omni_server import TONE, OmniServer

ABOUT = {"modalities": ["audio", "text"], "turn_detection": None, "model": "qwen3-omni"}


def address(server: OmniServer) -> str:
    return f"{server.address.replace('http', 'ws')}/v1/realtime?duplex=1&autostart=0&model=qwen3-omni"


async def say(session: ClientConnection, kind: str, /, **fields: Any) -> None:
    await session.send(json.dumps({"type": kind, **fields}))


async def turn(session: ClientConnection, tokens: int, reply_s: float, spoken_s: int = 1) -> float:
    """Speak for as long, and hear the reply to its end. Returns s of audio that came."""
    sound, format = base64.b64encode(TONE * spoken_s).decode(), {"format": "pcm16", "sample_rate_hz": 16_000}
    await say(session, "input_audio_buffer.append", audio=sound, **format)
    lengths = json.dumps({"output_tokens": tokens, "reply_audio_s": reply_s})
    await say(session, "input_audio_buffer.commit", final=True, create_response=True, event_id=lengths)
    heard_s = 0.0
    async with asyncio.timeout(60):
        async for message in session:
            event = json.loads(message)
            if event["type"] == "response.output_audio.delta":
                heard_s += len(event["delta"]) * 3 / 4 / 48_000
            elif event["type"] == "response.done":
                break
    return heard_s


def test_a_duplex_session_answers_with_the_length_that_its_commit_says(liveserve: OmniServer):
    async def call() -> float:
        async with connect(address(liveserve), max_size=None) as session:
            await say(session, "session.update", session=ABOUT)
            return await turn(session, 20, 6.0)

    assert round(asyncio.run(call()), 1) == 6.0


def test_the_talker_gets_the_states_of_a_prompt_whose_kv_was_found(liveserve: OmniServer):
    """Without them it waits for as many decode steps of the thinker as tokens were found."""

    async def call() -> float:
        async with connect(address(liveserve), max_size=None) as session:
            await say(session, "session.update", session=ABOUT)
            await turn(session, 4, 0.32, spoken_s=20)
            await say(session, "output_audio_buffer.clear")  # else it still plays, and no turn begins
            begun_s = time.monotonic()
            await turn(session, 200, 16.0)
            return begun_s

    begun_s = asyncio.run(call())
    steps = liveserve.steps(begun_s).to_pandas()
    prompts = steps[(steps["begin_s"] > 0) & (steps["prefill_tokens"] > 0)].set_index("stage")
    thinker, talker = prompts.loc["thinker"], prompts.loc["talker"]
    found = talker["tokens"] - thinker["tokens"]
    of_thinker = steps[(steps["stage"] == "thinker") & (steps["begin_s"] > thinker["begin_s"])]
    assert found > 100
    assert (of_thinker["begin_s"] < talker["submitted_s"]).sum() < found / 2
