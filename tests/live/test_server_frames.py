"""Sessions of frames of our server on the virtual clock: audio without pause, and an answer to each frame."""

import asyncio

import numpy as np
import pytest

from engines.endpoint.frame_session import MOST_BEHIND
from engines.server import ServerParams
from harness.clocks import clock
from tests.live.calls import Caller, call, called, still_open


def hush(seconds: float, rate: int = 24_000) -> np.ndarray:
    return np.zeros(round(seconds * rate), np.int16)


@pytest.mark.parametrize("engine", ("metronome", "vllm_realtime", "vllm_realtime_pr49439", "recycling"))
@called(frame_s=1.0)
async def test_each_frame_is_answered_with_the_tokens_asked_for(caller: Caller, engine: str) -> None:
    await asyncio.sleep(0.3)  # between two ticks
    for frame in range(8):
        caller.say("rehearsal.frame", frame=frame, output_tokens=10, content=frame)
        await caller.speak(hush(1.0))
        assert caller.connection.busy
    await asyncio.sleep(2.5)
    assert not caller.connection.busy
    await caller.leave()
    about = caller.events[0]["session"]["rehearsal"]
    assert (about["serves"], about["frame_s"], about["engine"]) == ("frames", 1.0, engine)
    answers = caller.of("rehearsal.frame.done")
    assert [answer["frame"] for answer in answers[:8]] == list(range(8)) and not caller.errors()
    assert [answer["waited_ms"] for answer in answers[:8]] == pytest.approx([700] * 8, abs=1)
    tokens = sum(answer["tokens"] for answer in answers)
    assert tokens == 70  # a Step brings what was said before it: all but the last answer
    text = "".join(event["delta"] for event in caller.of("response.output_text.delta"))
    assert len(text.replace(" ", "")) == 2 * tokens
    stats = caller.sessions.stats
    assert (stats.tokens["thinker"], stats.frame_s.count, still_open(caller.sessions)) == (tokens, 8, 0)


@pytest.mark.parametrize(("lag_s", "waited_ms"), [(0.1, 600), (0.8, 0)])
def test_the_wait_of_a_frame_counts_from_real_time_where_model_time_lags(
    monkeypatch: pytest.MonkeyPatch, lag_s: float, waited_ms: int
) -> None:
    """Dated by model time it would have waited 700 ms: longer than it was here, so its latency could be negative."""
    loop = clock.VirtualClockLoop
    monkeypatch.setattr(loop, "real_time", lambda self: self.time() + lag_s, raising=False)

    async def script(caller: Caller) -> None:
        await asyncio.sleep(0.3)
        for _ in range(3):
            await caller.speak(hush(1.0))
        await asyncio.sleep(2.5)
        caller.connection.end()

    answers = call("metronome", script, frame_s=1.0).of("rehearsal.frame.done")
    assert [answer["waited_ms"] for answer in answers[:3]] == pytest.approx([waited_ms] * 3, abs=1)


@called("metronome", frame_s=1.0)
async def test_frames_are_cut_by_samples_and_not_by_messages(caller: Caller) -> None:
    heard = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
    caller.say("session.update", session={"type": "realtime", "audio": {"input": heard}})
    caller.append(hush(2.5, 16_000))
    caller.append(hush(0.49, 16_000))
    assert caller.sessions.stats.events["fed"] == 0
    await asyncio.sleep(3)
    caller.append(hush(0.01, 16_000))
    await asyncio.sleep(3)
    await caller.leave()
    assert [answer["frame"] for answer in caller.of("rehearsal.frame.done")] == [1, 2]
    assert caller.sessions.stats.events["fed"] == 3


@called("metronome", admission="aimd", cap_start=2)
async def test_a_caller_above_the_cap_gets_overloaded_and_close_code_1013(caller: Caller) -> None:
    callers = [caller, Caller(caller.sessions), Caller(caller.sessions)]
    await asyncio.sleep(1)
    for each in callers:
        each.append(hush(2.0))
        each.connection.end()
    await caller.leave()
    assert [each.closed for each in callers] == [[], [], [1013]]
    assert callers[2].errors() == ["overloaded"] and not callers[2].of("session.created")
    assert not still_open(caller.sessions)


@called("vllm_realtime", ServerParams.model_validate({"kv_pool_blocks": 256}))
async def test_a_session_with_a_full_context_ends_and_the_next_one_is_served(caller: Caller) -> None:
    for frame in range(14):
        caller.say("rehearsal.frame", frame=frame, output_tokens=400)
        caller.append(hush(2.0))
        await asyncio.sleep(2.0)
    after = Caller(caller.sessions)
    after.append(hush(2.0))
    await asyncio.sleep(4.0)
    await after.leave()
    assert caller.closed == [1011]
    assert caller.of("rehearsal.session.failed")[0]["reason"] == "its context is full"
    assert after.of("rehearsal.frame.done") and not after.closed and not still_open(caller.sessions)


@called("metronome")
async def test_a_caller_too_far_ahead_of_time_is_closed_with_1011(caller: Caller) -> None:
    for _ in range(MOST_BEHIND + 5):
        caller.append(hush(2.0))
    await caller.leave()
    assert caller.closed == [1011] and not still_open(caller.sessions)


@called("metronome")
async def test_events_of_turns_and_wrong_frames_are_errors(caller: Caller) -> None:
    caller.say("response.create")
    caller.say("rehearsal.frame", frame=500)
    caller.say("rehearsal.frame", frame=0, output_tokens=0)
    caller.say("rehearsal.frame", frame=0, content=-1)
    caller.append(hush(0.5))
    caller.say("session.update", session={"audio": {"input": {"format": {"rate": 16_000}}}})
    caller.say("input_audio_buffer.clear")
    caller.append(hush(1.9))
    await caller.leave()
    assert caller.errors() == ["invalid_value"] * 5
    assert caller.sessions.stats.events["fed"] == 0
