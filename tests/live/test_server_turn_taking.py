"""What takes the floor from our server's replies, and its simulated detector of finished turns."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.live.calls import Caller, call
from tests.live.test_server_vad import silence, speech


def converse(script: Callable[[Caller], Awaitable[None]], **session: Any) -> Caller:
    """One caller with a session of these settings, which then does as `script` says."""

    async def main(caller: Caller) -> None:
        caller.say("session.update", session={"type": "realtime", **session})
        await script(caller)
        await asyncio.sleep(60)

    return call("liveserve", main)


def gate(**interruption: int) -> dict[str, Any]:
    return {"rehearsal": {"interruption": interruption}}


def semantic(eagerness: str = "auto") -> dict[str, Any]:
    return {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}}}}


async def first_audio(caller: Caller) -> None:
    while not caller.of("response.output_audio.delta"):
        await caller.speak(silence(0.02))


@pytest.mark.parametrize("seconds, cut", ((0.4, False), (2.0, True)))
def test_what_is_shorter_than_the_gate_leaves_the_reply_alone(seconds: float, cut: bool) -> None:
    async def script(caller: Caller) -> None:
        caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": 60, "reply_audio_s": 15.0})
        await caller.speak(np.concatenate([silence(0.5), speech(), silence(0.8)]))
        await first_audio(caller)
        await caller.speak(silence(0.5))
        await caller.speak(np.concatenate([speech(seconds=seconds), silence(1.2)]))

    caller = converse(script, **gate(min_duration_ms=800))
    assert caller.events[1]["session"]["rehearsal"]["interruption"]["min_duration_ms"] == 800
    statuses = [done["status"] for done in caller.done()]
    committed, cleared = caller.of("input_audio_buffer.committed"), caller.of("input_audio_buffer.cleared")
    assert len(caller.of("input_audio_buffer.speech_started")) == 2
    if cut:
        assert statuses == ["cancelled", "completed"] and len(committed) == 2 and not cleared
        started, stopped = (
            caller.when("input_audio_buffer.speech_started")[1],
            caller.when("output_audio_buffer.cleared")[0],
        )
        # The gate counts from the begin of the speech, which was found later
        assert 0.6 < stopped - started < 0.8
        assert stopped <= caller.when("response.done")[0]  # which waits for the step under way
    else:
        assert statuses == ["completed"] and len(committed) == 1 and len(cleared) == 1
        assert not caller.of("output_audio_buffer.cleared")
        assert len(caller.audio()) / 24_000 == pytest.approx(15.0, abs=0.1)
        # The policy knows that the reply was heard on: it is over when its playback is.
        assert caller.sessions.server.gateway.monitor.sessions[0].phase == "idle"  # type: ignore[union-attr]
    assert not caller.errors()


def test_replies_are_as_long_as_the_silence_before_them_says() -> None:
    async def script(caller: Caller) -> None:
        await caller.speak(speech())
        caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": 20, "reply_audio_s": 4.0})
        await caller.speak(silence(0.8))

    caller = converse(script)
    assert len(caller.audio()) / 24_000 == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("eagerness, timeout_s", (("auto", 4.0), ("high", 2.0)))
def test_a_simulated_detector_waits_through_hesitations_as_often_as_published(eagerness: str, timeout_s: float) -> None:
    """Hesitations and ends of turns by turns, in a call that hears no replies."""
    waits: list[float] = []

    async def script(caller: Caller) -> None:
        for ends_turn in 12 * (False, True):
            await caller.speak(speech(seconds=1.0))
            caller.say("rehearsal.silence", ends_turn=ends_turn)
            ends = len(caller.of("input_audio_buffer.speech_stopped"))
            begun_s = asyncio.get_running_loop().time()
            while len(caller.of("input_audio_buffer.speech_stopped")) == ends:
                await caller.speak(silence(0.02))
            waits.append(asyncio.get_running_loop().time() - begun_s)

    detection = semantic(eagerness)
    detection["audio"]["input"]["turn_detection"]["create_response"] = False
    caller = converse(script, **detection)
    session = caller.events[1]["session"]
    assert session["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
    assert "simulated" in session["rehearsal"]["turn_detection"]
    early = [wait_s < 1.0 for wait_s in waits]
    assert sum(early[1::2]) >= 9 and sum(early[0::2]) <= 4
    hangover_s = 0.12  # for which webrtcvad takes what follows speech for more of it
    for wait_s in waits:
        expected_s = (0.26 if wait_s < 1.0 else timeout_s) + hangover_s
        assert wait_s == pytest.approx(expected_s, abs=0.061)


def test_settings_that_make_no_sense_are_refused() -> None:
    async def script(caller: Caller) -> None:
        for session in (gate(min_duration_ms=-1), gate(min_words=1000), semantic("eager")):
            caller.say("session.update", session=session)
        caller.say("rehearsal.silence")
        caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": 0})
        caller.say("rehearsal.silence", ends_turn=True, reply={"output_tokens": "some"})

    caller = converse(script)
    about = [event["error"]["param"] for event in caller.of("error")]
    where = "session.rehearsal.interruption"
    assert about == [
        f"{where}.min_duration_ms",
        f"{where}.min_words",
        "session",
        "ends_turn",
        "reply.output_tokens",
        "reply",
    ]
    assert json.dumps(caller.events[-1])
