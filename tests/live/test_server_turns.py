"""Turns of a live server, on the virtual clock: every event is checked by the official client's types on its way."""

import asyncio

import numpy as np
import pytest

from engines.endpoint.server_sessions import Sessions
from engines.server import ServerParams
from engines.turns.gateway import TOO_LONG
from tests.live.calls import MANUAL, Caller, call, play, still_open

TURN_ENGINES = ("vllm_omni", "vllm_omni_wo", "liveserve")


def hiss(seconds: float, rate: int = 24_000) -> np.ndarray:
    return np.random.default_rng(0).integers(-3000, 3000, round(seconds * rate))


@pytest.mark.parametrize("engine", TURN_ENGINES)
def test_a_spoken_turn_is_answered_with_exactly_the_speech_and_text_that_was_asked_for(engine: str) -> None:
    async def script(caller: Caller) -> None:
        caller.say("session.update", session=MANUAL)
        await caller.speak(hiss(2.0))
        caller.say("input_audio_buffer.commit")
        hint = '{"output_tokens": 30, "reply_audio_s": 8.0, "visual_tokens": null}'
        caller.say("response.create", response={"metadata": {"rehearsal": hint, "mine": "x"}})
        assert still_open(caller.sessions) == 1
        await asyncio.sleep(30)
        caller.connection.end()
        caller.connection.end()

    caller = call(engine, script)
    [done] = caller.done()
    assert done["status"] == "completed" and done["metadata"]["mine"] == "x"
    assert done["usage"]["output_token_details"] == {"text_tokens": 30, "audio_tokens": 100}
    assert done["usage"]["input_tokens"] == 26  # 2 s at 13 tokens/s, and no history
    assert len(caller.audio()) == 8 * 24_000
    text = "".join(event["delta"] for event in caller.of("response.output_audio_transcript.delta"))
    assert len(caller.of("response.output_audio_transcript.delta")) == 30
    assert done["output"][0]["content"][0]["transcript"] == text
    types = [event["type"] for event in caller.events]
    order = [
        "session.created",
        "session.updated",
        "input_audio_buffer.committed",
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_item.done",
        "response.done",
    ]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)
    ids = [event["event_id"] for event in caller.events]
    assert len(set(ids)) == len(ids)
    assert caller.events[0]["session"]["rehearsal"]["serves"] == "turns"
    stats = caller.sessions.stats
    assert (still_open(caller.sessions), stats.replies, stats.turns["completed"]) == (0, 0, 1)
    assert stats.tokens == {"thinker": 30, "talker": 100} and stats.audio_sent_s == 8.0
    committed_s, first_s = (caller.when("response.created")[0], caller.when("response.output_audio.delta")[0])
    assert stats.ttfp_s.count == 1 and stats.ttfp_s.sum == pytest.approx(first_s - committed_s)


def test_history_grows_by_what_was_said_and_heard() -> None:
    async def script(caller: Caller) -> None:
        caller.say("session.update", session={"type": "realtime", "output_modalities": ["text"]})
        for _ in range(3):
            caller.ask("x" * 40, output_tokens=20)
            await asyncio.sleep(5)

    caller = call("vllm_omni", script)
    usage = [done["usage"] for done in caller.done()]
    assert [each["input_tokens"] for each in usage] == [10, 40, 70]  # 40 characters are 10 tokens
    assert [each["output_token_details"]["audio_tokens"] for each in usage] == [0, 0, 0]
    assert not caller.of("response.output_audio.delta")
    assert [done["output"][0]["content"][0]["type"] for done in caller.done()] == ["output_text"] * 3


@pytest.mark.parametrize("engine", ("vllm_omni", "liveserve"))
def test_a_cut_reply_stops_at_once_and_counts_what_was_in_flight_when_the_engines_know(engine: str) -> None:
    async def script(caller: Caller) -> None:
        caller.say("session.update", session=MANUAL)
        caller.ask(output_tokens=60, reply_audio_s=16.0)
        await asyncio.sleep(1.0)
        caller.say("rehearsal.playback", played_ms=480, playing=False)
        await asyncio.sleep(0.3)
        caller.say("response.cancel")
        sent.append(len(caller.audio()))
        caller.say("response.cancel")  # it is over
        await asyncio.sleep(5)
        caller.ask("more", output_tokens=5, reply_audio_s=1.0)
        await asyncio.sleep(5)

    sent = list[int]()
    caller = call(engine, script)
    cut, after = caller.done()
    assert cut["status"] == "cancelled" and cut["status_details"]["reason"] == "client_cancelled"
    frames_heard = 6  # 480 ms of 80 ms
    assert cut["rehearsal"]["heard"] == {"thinker": frames_heard * 60 // 200, "talker": frames_heard}
    produced = cut["usage"]["output_token_details"]
    assert frames_heard < produced["audio_tokens"] < 200 and produced["text_tokens"] <= 60
    assert produced["audio_tokens"] >= sent[0] / 1920
    assert caller.errors() == ["response_cancel_not_active"]
    later = [each for each in caller.events if each.get("response_id") == cut["id"]]
    assert all("delta" not in each["type"] for each in caller.events[caller.events.index(later[-1]) + 1 :][:1])
    heard, stats = cut["rehearsal"]["heard"], caller.sessions.stats
    assert stats.turns == {"cancelled": 1, "completed": 1}
    assert stats.wasted == {
        "thinker": produced["text_tokens"] - heard["thinker"],
        "talker": produced["audio_tokens"] - heard["talker"],
    }
    assert after["usage"]["input_tokens"] == 2 + heard["thinker"] + 1  # "Hello", what was heard, "more"


def test_a_turn_that_does_not_fit_fails_and_the_session_goes_on() -> None:
    async def script(caller: Caller) -> None:
        caller.say("session.update", session=MANUAL)
        for tokens in (500, 600, 400):
            caller.ask(input_tokens=tokens, output_tokens=4, reply_audio_s=None)
            await asyncio.sleep(5)

    caller = call("vllm_omni", script, ServerParams(kv_pool_blocks=64))
    failed = {"type": "failed", "error": {"code": "context_length_exceeded", "message": TOO_LONG}}
    assert [each["status_details"] for each in caller.done()[1:]] == [failed, {"type": "completed"}]
    assert caller.sessions.stats.turns == {"completed": 2, "failed": 1}
    assert caller.done()[2]["usage"]["input_tokens"] == 500 + 4 + 400


def test_a_reply_cut_before_it_begins_leaves_what_was_said() -> None:
    async def script(caller: Caller) -> None:
        caller.ask("x" * 40)
        caller.say("response.cancel")
        caller.ask("x" * 40, output_tokens=4, reply_audio_s=1.0)
        await asyncio.sleep(5)

    caller = call("vllm_omni", script)
    cut, after = caller.done()
    assert cut["status"] == "cancelled" and cut["usage"]["output_tokens"] == 0
    assert cut["rehearsal"]["heard"] == {"thinker": 0, "talker": 0}
    assert after["status"] == "completed" and after["usage"]["input_tokens"] == 20
    assert caller.sessions.stats.wasted == {"thinker": 0, "talker": 0}


def test_a_complete_reply_can_be_interrupted_while_it_plays() -> None:
    async def script(caller: Caller) -> None:
        caller.ask(output_tokens=30, reply_audio_s=16.0)
        await asyncio.sleep(8)
        caller.say("rehearsal.playback", played_ms=6400, playing=True)
        await asyncio.sleep(0.8)
        caller.say("response.cancel")
        caller.ask("more", output_tokens=4, reply_audio_s=1.0)
        await asyncio.sleep(5)

    caller = call("liveserve", script)
    complete, after = caller.done()
    assert complete["status"] == "completed" and "rehearsal" not in complete
    [heard] = caller.of("rehearsal.heard")
    assert heard["heard"] == {"thinker": 90 * 30 // 200, "talker": 90}  # 6.4 s reported and 0.8 s since
    assert caller.sessions.stats.wasted == {"thinker": 30 - 13, "talker": 110}
    assert after["usage"]["input_tokens"] == 2 + 13 + 1


def test_truncate_says_after_the_fact_what_was_heard() -> None:
    async def script(caller: Caller) -> None:
        caller.ask(output_tokens=40, reply_audio_s=8.0)
        await asyncio.sleep(0.8)
        caller.say("response.cancel")
        await asyncio.sleep(1)
        item = caller.done()[0]["output"][0]["id"]
        caller.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=800)
        caller.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=10**7)
        caller.say("conversation.item.truncate", item_id="item_x", content_index=0, audio_end_ms=0)
        caller.ask("more", output_tokens=4, reply_audio_s=1.0)
        await asyncio.sleep(5)
        caller.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=0)

    caller = call("vllm_omni", script)
    cut, after = caller.done()
    frames = int((0.8 - caller.when("response.output_audio.delta")[0]) / 0.08)  # since the first audio
    assert cut["rehearsal"]["heard"] == {"thinker": frames * 40 // 100, "talker": frames}
    assert after["usage"]["input_tokens"] == 2 + 10 * 40 // 100 + 1  # 800 ms are 10 frames of 100
    [truncated] = caller.of("conversation.item.truncated")
    assert truncated["audio_end_ms"] == 800
    assert caller.errors() == ["invalid_value", "item_not_found", "item_not_found"]


def test_who_vanishes_frees_everything() -> None:
    async def script(sessions: Sessions) -> None:
        lost, other = Caller(sessions), Caller(sessions)
        for caller in (lost, other):
            caller.ask(output_tokens=60, reply_audio_s=16.0)
        await asyncio.sleep(1)
        lost.connection.end()
        count = len(lost.events)
        await asyncio.sleep(30)
        assert len(lost.events) == count
        lost.say("response.create")  # what was on its way
        assert len(lost.events) == count
        assert [done["status"] for done in other.done()] == ["completed"]
        other.connection.end()

    sessions = play("liveserve", script)
    assert sessions.stats.turns == {"lost": 1, "completed": 1} and sessions.stats.replies == 0
    assert 0 < sessions.stats.wasted["talker"] < 200
    assert not sessions.server.gateway.monitor.sessions


@pytest.mark.parametrize("rate", (16_000, 24_000))
def test_input_counts_as_long_as_it_lasts_at_either_rate(rate: int) -> None:
    async def script(caller: Caller) -> None:
        heard = {"turn_detection": None, "format": {"type": "audio/pcm", "rate": rate}}
        caller.say("session.update", session={"type": "realtime", "audio": {"input": heard}})
        caller.append(hiss(1.0, rate))
        caller.say("input_audio_buffer.commit")
        caller.say("response.create", response={"output_modalities": ["text"]})
        await asyncio.sleep(20)

    caller = call("vllm_omni", script)
    assert caller.done()[0]["usage"]["input_tokens"] == 13


def test_two_turns_never_run_at_once_and_nothing_said_is_answered_all_the_same() -> None:
    async def script(caller: Caller) -> None:
        caller.say("response.create", event_id="mine")
        caller.say("response.create", event_id="again")
        await asyncio.sleep(200)
        caller.say("response.create")
        await asyncio.sleep(200)

    caller = call("vllm_omni", script)
    assert [done["status"] for done in caller.done()] == ["completed"] * 2
    [error] = caller.of("error")
    assert error["error"]["code"] == "conversation_already_has_active_response"
    assert error["error"]["event_id"] == "again"


def test_lengths_are_drawn_from_the_seed_and_the_session_alone() -> None:
    async def script(sessions: Sessions) -> None:
        callers = [Caller(sessions) for _ in range(3)]
        for caller in callers:
            caller.say("response.create")
        await asyncio.sleep(300)
        drawn.append([caller.done()[0]["usage"]["output_token_details"] for caller in callers])

    drawn: list[list[dict[str, int]]] = []
    for engine in ("vllm_omni", "liveserve"):
        play(engine, script)
    assert drawn[0] == drawn[1]
    assert len({str(each) for each in drawn[0]}) == 3


def test_a_model_that_does_not_speak_answers_in_text() -> None:
    async def script(caller: Caller) -> None:
        caller.say("session.update", session={"type": "realtime", "output_modalities": ["audio"]})
        caller.say("session.update", session=MANUAL)
        caller.append(hiss(1.0))
        caller.say("input_audio_buffer.commit")
        caller.say("response.create")
        await asyncio.sleep(100)

    caller = call("vllm_omni_wo", script, ServerParams(deployment="llama_8b_1gpu"))
    assert caller.errors() == ["invalid_value"] and "does not speak" in caller.of("error")[0]["error"]["message"]
    assert caller.done()[0]["usage"]["input_tokens"] == 13 and caller.of("response.output_text.delta")


def test_the_longest_replies_that_anybody_asks_for_are_cut_to_what_the_stages_allow() -> None:
    async def script(caller: Caller) -> None:
        caller.ask(output_tokens=10**6, reply_audio_s=86_400.0, input_tokens=10**6, visual_tokens=10**6)
        await asyncio.sleep(2000)

    caller = call("vllm_omni", script, ServerParams(kv_pool_blocks=64, truncate_prompts=True))
    [done] = caller.done()
    assert done["status"] == "completed" and done["usage"]["output_tokens"] > 500
