"""Our server of speech synthesis, with the official client and with ours."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from harness.live.endpoints.target import TargetParams
from harness.live.run.preflight import ask_one_word
from tests.live.served import served
from tests.waiting import in_a_loop

TTS: dict[str, Any] = {"deployment": "qwen3_tts_2gpu"}
ASKED: dict[str, Any] = {"model": "any", "voice": "Vivian", "input": "so much is said", "response_format": "pcm"}
FRAME_BYTES = 3840


async def pieces(client: Any, **more: Any) -> list[bytes]:
    async with client.audio.speech.with_streaming_response.create(**ASKED | more) as answer:
        assert answer.headers["content-type"] == "audio/pcm;rate=24000"
        return [piece async for piece in answer.iter_bytes()]


@in_a_loop
async def test_sound_is_streamed_while_it_is_made() -> None:
    async with served(**TTS) as server, server.client() as client:
        for _ in range(2):
            sound = await pieces(client)
            assert len(sound[0]) == FRAME_BYTES and len(sound) > 1
            assert sum(map(len, sound)) % FRAME_BYTES == 0
        stats = server.sessions.stats
        assert [turn.output_tokens for turn in server.turns] == [4, 4]
        assert (stats.ttfp_s.count, stats.longest_gap_s.count, stats.turns["completed"]) == (2, 2, 2)
        assert set(stats.tokens) == {"talker"} and not any(stats.wasted.values())
        assert server.sockets.sockets == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"input": ""}, "input has 0 characters, 0 tokens; send 1 to 500 tokens."),
        ({"input": "word " * 401}, "input has 2005 characters, 502 tokens; send 1 to 500 tokens."),
        ({"response_format": "mp3"}, "response_format is 'mp3', and this server knows only 'pcm'; set that."),
        ({"speed": 2.0}, "speed is 2.0, and this server knows only 1.0; set that."),
    ],
)
@in_a_loop
async def test_a_request_that_cannot_be_spoken_is_rejected_by_its_field(more: dict[str, Any], says: str) -> None:
    async with served(**TTS) as server, server.client() as client:
        with pytest.raises(BadRequestError) as refused:
            await client.audio.speech.create(**ASKED | more)
        assert says in refused.value.message and refused.value.param == next(iter(more))
        with pytest.raises(NotFoundError, match="There is /v1/audio/speech, /v1/models"):
            await client.chat.completions.create(model="any", messages=[])


@in_a_loop
async def test_our_preflight_accepts_our_speech_server() -> None:
    async with served(**TTS) as server:
        await ask_one_word(TargetParams.model_validate({"url": f"http://127.0.0.1:{server.port}/v1/audio/speech"}))
        assert server.sessions.stats.turns["completed"] == 1
