"""Interruptions of our server's replies, and its simulated semantic VAD."""

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.live.calls import Caller, called
from tests.live.test_server_vad import silence, speech


def gate(**interruption: int) -> dict[str, Any]:
    return {"type": "realtime", "rehearsal": {"interruption": interruption}}


def semantic(eagerness: str) -> dict[str, Any]:
    detection = {"type": "semantic_vad", "eagerness": eagerness, "create_response": False}
    return {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}


async def speak_over_a_reply(caller: Caller, seconds: float) -> None:
    """Speech after half a second of a reply of 15 s, with a gate of 0.8 s; returns when all is over."""
    caller.say("session.update", session=gate(min_duration_ms=800))
    assert caller.events[1]["session"]["rehearsal"]["interruption"]["min_duration_ms"] == 800
    caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": 60, "reply_audio_s": 15.0})
    await caller.speak(np.concatenate([silence(0.5), speech(), silence(0.8)]))
    while not caller.of("response.output_audio.delta"):
        await caller.speak(silence(0.02))
    await caller.speak(np.concatenate([silence(0.5), speech(seconds=seconds), silence(1.2)]))
    await asyncio.sleep(60)
    assert len(caller.of("input_audio_buffer.speech_started")) == 2 and not caller.errors()


@called("liveserve")
async def test_speech_shorter_than_min_duration_leaves_the_reply_alone(caller: Caller) -> None:
    await speak_over_a_reply(caller, 0.4)
    assert [done["status"] for done in caller.done()] == ["completed"]
    assert len(caller.of("input_audio_buffer.committed")) == len(caller.of("input_audio_buffer.cleared")) == 1
    assert not caller.of("output_audio_buffer.cleared")
    assert len(caller.audio()) / 24_000 == pytest.approx(15.0, abs=0.1)
    # The policy knows that the reply was heard on: it is over when its playback is.
    gateway: Any = caller.sessions.server.gateway
    assert gateway.monitor.sessions[0].phase == "idle"


@called("liveserve")
async def test_speech_longer_than_min_duration_cuts_the_reply(caller: Caller) -> None:
    await speak_over_a_reply(caller, 2.0)
    assert [done["status"] for done in caller.done()] == ["cancelled", "completed"]
    assert len(caller.of("input_audio_buffer.committed")) == 2 and not caller.of("input_audio_buffer.cleared")
    _, started_s = caller.when("input_audio_buffer.speech_started")
    [stopped_s] = caller.when("output_audio_buffer.cleared")
    assert 0.6 < stopped_s - started_s < 0.8, "the gate counts from the begin of the speech, which was found later"
    assert stopped_s <= caller.when("response.done")[0], "which waits for the step under way"


@pytest.mark.parametrize("eagerness, timeout_s", (("auto", 4.0), ("high", 2.0)))
@called("liveserve")
async def test_semantic_vad_waits_through_hesitations_as_often_as_published(
    caller: Caller, eagerness: str, timeout_s: float
) -> None:
    """Hesitations and ends of turns by turns, in a call that hears no replies."""
    caller.say("session.update", session=semantic(eagerness))
    session = caller.events[1]["session"]
    assert session["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
    assert "simulated" in session["rehearsal"]["turn_detection"]
    waits_s: list[float] = []
    for ends_turn in 12 * (False, True):
        await caller.speak(speech(seconds=1.0))
        caller.say("rehearsal.silence", ends_turn=ends_turn)
        begun_s = asyncio.get_running_loop().time()
        while len(caller.of("input_audio_buffer.speech_stopped")) == len(waits_s):
            await caller.speak(silence(0.02))
        waits_s.append(asyncio.get_running_loop().time() - begun_s)
    early = [wait_s < 1.0 for wait_s in waits_s]
    assert sum(early[1::2]) >= 9 and sum(early[0::2]) <= 4
    hangover_s = 0.12  # for which webrtcvad takes what follows speech for more of it
    expected_s = [hangover_s + (0.26 if soon else timeout_s) for soon in early]
    assert waits_s == pytest.approx(expected_s, abs=0.061)


@called("liveserve")
async def test_settings_out_of_range_are_errors(caller: Caller) -> None:
    for session in (gate(min_duration_ms=-1), gate(min_words=1000), semantic("eager")):
        caller.say("session.update", session=session)
    caller.say("rehearsal.silence")
    for tokens in (0, "some"):
        caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": tokens})
    interruption = [f"session.rehearsal.interruption.{name}" for name in ("min_duration_ms", "min_words")]
    about = [event["error"]["param"] for event in caller.of("error")]
    assert about == [*interruption, "session", "ends_turn", "reply.output_tokens", "reply"]
