"""Server VAD: the server finds speech in a stream of audio, and ends and answers turns by itself."""

import asyncio
from random import Random
from typing import Any

import numpy as np
import pytest

from engines.endpoint.listening_session import Listening
from engines.endpoint.turn_detection import Interruption, ServerVad
from tests.live.calls import Caller, called
from workloads.audio.synth import SyntheticClip


def speech(rate: int = 24_000, seconds: float = 2.0) -> np.ndarray:
    clip = next(clip for clip in map(SyntheticClip, range(99)) if clip.seconds >= seconds)
    return clip.pcm(rate)[: round(seconds * rate)]


def silence(seconds: float, rate: int = 24_000) -> np.ndarray:
    return np.zeros(round(seconds * rate), np.int16)


def changes(pcm: np.ndarray, rate: int, **settings: Any) -> list[tuple[str, float]]:
    """Each decision of the detector and its time, s."""
    listening = Listening(rate, ServerVad(**settings), Interruption(), Random(0))
    size = listening.frame_bytes // 2
    return [
        (decision, (begin + size) / rate)
        for begin in range(0, len(pcm) - size + 1, size)
        for decision in listening.frame(pcm[begin : begin + size].astype("<i2").tobytes(), replying=False)
    ]


@pytest.mark.parametrize("rate", (16_000, 24_000))
def test_speech_starts_within_250_ms_and_ends_after_silence_duration_ms(rate: int) -> None:
    pcm = np.concatenate([silence(1.0, rate), speech(rate), silence(1.5, rate)])
    (begun, begun_s), (ended, ended_s) = changes(pcm, rate, silence_duration_ms=600)
    assert (begun, ended) == ("started", "ended")
    assert 1.0 < begun_s < 1.25 and 3.4 < ended_s < 3.8


def test_neither_silence_nor_a_click_nor_steady_noise_is_speech() -> None:
    rng = np.random.default_rng(0)
    assert not changes(silence(3.0), 24_000)
    for samples in (120, 240, 720):
        click = silence(2.0)
        click[24_000 : 24_000 + samples] = rng.normal(0, 8_000, samples)
        assert not changes(click, 24_000), samples
    assert not changes(rng.normal(0, 30, 3 * 24_000).astype(np.int16), 24_000)


@called("liveserve")
async def test_the_server_ends_a_turn_answers_it_and_stops_when_the_user_speaks(caller: Caller) -> None:
    await caller.speak(np.concatenate([silence(1.0), speech(), silence(1.0)]))
    while not caller.of("response.output_audio.delta"):
        await caller.speak(silence(0.02))
    await caller.speak(silence(0.4))
    await caller.speak(np.concatenate([speech(), silence(1.0)]))
    await asyncio.sleep(60)
    started, again = caller.of("input_audio_buffer.speech_started")
    stopped = caller.of("input_audio_buffer.speech_stopped")[0]
    assert 600 <= started["audio_start_ms"] <= 1000  # 300 ms before the speech, as a prefix
    assert 3400 <= stopped["audio_end_ms"] <= 3700
    committed = caller.of("input_audio_buffer.committed")
    assert [each["item_id"] for each in committed] == [started["item_id"], again["item_id"]]
    cut, after = caller.done()
    assert (cut["status"], after["status"]) == ("cancelled", "completed")
    assert cut["status_details"]["reason"] == "turn_detected"
    # The first turn: the prefix, the speech and the silence that ended it, at 13 tokens/s.
    assert 13 * 2.6 <= cut["usage"]["input_tokens"] <= 13 * 3.1 + 1
    assert 0 < cut["rehearsal"]["heard"]["talker"] <= cut["usage"]["output_token_details"]["audio_tokens"]
    assert caller.sessions.stats.turns == {"cancelled": 1, "completed": 1}
    assert not caller.errors()


def detect(caller: Caller, **settings: bool) -> None:
    vad = {"type": "server_vad", **settings}
    caller.say("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": vad}}})


@called("vllm_omni")
async def test_without_interrupt_response_speech_is_answered_after_the_reply(caller: Caller) -> None:
    detect(caller, interrupt_response=False)
    caller.ask(output_tokens=200, reply_audio_s=60.0)
    await caller.speak(np.concatenate([silence(0.3), speech(), silence(0.8)]))
    assert not caller.done()
    await asyncio.sleep(200)
    assert [done["status"] for done in caller.done()] == ["completed", "completed"]


@called("vllm_omni")
async def test_without_create_response_the_client_asks_for_the_reply(caller: Caller) -> None:
    detect(caller, create_response=False)
    await caller.speak(np.concatenate([speech(), silence(0.8)]))
    assert len(caller.of("input_audio_buffer.committed")) == 1
    await asyncio.sleep(5)
    assert not caller.of("response.created")
    caller.say("response.create")
    await asyncio.sleep(100)
    assert len(caller.done()) == 1


@called("vllm_omni")
async def test_speech_without_a_pause_ends_after_120_s(caller: Caller) -> None:
    await caller.speak(np.tile(speech(), 70))
    await asyncio.sleep(1)
    ends = caller.of("input_audio_buffer.speech_stopped")
    assert len(ends) == 1 and 119_000 < ends[0]["audio_end_ms"] < 121_000
