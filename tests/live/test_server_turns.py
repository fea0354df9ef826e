"""Turns of our server on the virtual clock; `Caller` checks every event by the official client's types."""

import asyncio

import numpy as np
import pytest

from engines.server import ServerParams
from engines.turns.gateway import TOO_LONG
from tests.live.calls import MANUAL, Caller, call, called, still_open

ORDER = (
    *("session.created", "session.updated", "input_audio_buffer.committed", "response.created"),
    *("response.output_item.added", "response.content_part.added", "response.output_audio_transcript.delta"),
    *("response.output_audio.delta", "response.output_audio.done", "response.output_item.done", "response.done"),
)
"""The order of the first event of each type."""


def hiss(seconds: float, rate: int = 24_000) -> np.ndarray:
    return np.random.default_rng(0).integers(-3000, 3000, round(seconds * rate))


@pytest.fixture(scope="module", params=["vllm_omni", "vllm_omni_wo", "liveserve"])
def answered(request: pytest.FixtureRequest) -> Caller:
    """The caller spoke for 2 s, asked for 30 text tokens and 8 s of audio, heard the reply out and left."""

    async def turn(caller: Caller) -> None:
        caller.say("session.update", session=MANUAL)
        await caller.speak(hiss(2.0))
        caller.say("input_audio_buffer.commit")
        hint = '{"output_tokens": 30, "reply_audio_s": 8.0, "visual_tokens": null}'
        caller.say("response.create", response={"metadata": {"rehearsal": hint, "mine": "x"}})
        assert still_open(caller.sessions) == 1
        await asyncio.sleep(30)
        caller.connection.end()
        await caller.leave()  # ends the connection again, which changes nothing
        assert still_open(caller.sessions) == 0

    return call(request.param, turn)


def test_a_spoken_turn_is_answered_with_the_speech_and_text_asked_for(answered: Caller) -> None:
    [done] = answered.done()
    assert done["status"] == "completed" and done["metadata"]["mine"] == "x"
    assert done["usage"]["output_token_details"] == {"text_tokens": 30, "audio_tokens": 100}  # 0.08 s an audio token
    assert done["usage"]["input_tokens"] == 26  # 2 s at 13 tokens/s, and no history
    assert len(answered.audio()) == 8 * 24_000
    text = [event["delta"] for event in answered.of("response.output_audio_transcript.delta")]
    assert len(text) == 30 and done["output"][0]["content"][0]["transcript"] == "".join(text)
    stats = answered.sessions.stats
    assert (stats.turns["completed"], stats.tokens, stats.audio_sent_s) == (1, {"thinker": 30, "talker": 100}, 8.0)
    waited_s = answered.when("response.output_audio.delta")[0] - answered.when("response.created")[0]
    assert stats.ttfp_s.count == 1 and stats.ttfp_s.sum == pytest.approx(waited_s)


def test_the_events_of_a_reply_come_in_the_order_of_the_protocol(answered: Caller) -> None:
    types = [event["type"] for event in answered.events]
    assert [*dict.fromkeys(each for each in types if each in ORDER)] == [*ORDER]
    assert len({event["event_id"] for event in answered.events}) == len(types)
    assert answered.events[0]["session"]["rehearsal"]["serves"] == "turns"


@called("vllm_omni")
async def test_each_prompt_has_the_turns_and_replies_before_it(caller: Caller) -> None:
    caller.say("session.update", session={"type": "realtime", "output_modalities": ["text"]})
    for _ in range(3):
        caller.ask("x" * 40, output_tokens=20)
        await asyncio.sleep(5)
    usage = [done["usage"] for done in caller.done()]
    assert [each["input_tokens"] for each in usage] == [10, 40, 70]  # 40 characters are 10 tokens
    assert [each["output_token_details"]["audio_tokens"] for each in usage] == [0, 0, 0]
    assert not caller.of("response.output_audio.delta")
    assert [done["output"][0]["content"][0]["type"] for done in caller.done()] == ["output_text"] * 3


@pytest.mark.parametrize("engine", ("vllm_omni", "liveserve"))
@called()
async def test_a_cancelled_reply_stops_at_once_and_counts_the_tokens_not_heard_as_wasted(
    caller: Caller, engine: str
) -> None:
    caller.say("session.update", session=MANUAL)
    caller.ask(output_tokens=60, reply_audio_s=16.0)
    await asyncio.sleep(1.0)
    caller.say("rehearsal.playback", played_ms=480, playing=False)
    await asyncio.sleep(0.3)
    caller.say("response.cancel")
    sent = len(caller.audio())
    caller.say("response.cancel")  # it is over
    await asyncio.sleep(5)
    assert len(caller.audio()) == sent
    caller.ask("more", output_tokens=5, reply_audio_s=1.0)
    await asyncio.sleep(5)
    cut, after = caller.done()
    assert cut["status"] == "cancelled" and cut["status_details"]["reason"] == "client_cancelled"
    assert cut["rehearsal"]["heard"] == {"thinker": 6 * 60 // 200, "talker": 6}  # 480 ms of 80 ms
    made = cut["usage"]["output_token_details"]
    assert max(7, sent / 1920) <= made["audio_tokens"] < 200 and made["text_tokens"] <= 60
    assert caller.errors() == ["response_cancel_not_active"]
    stats = caller.sessions.stats
    assert stats.turns == {"cancelled": 1, "completed": 1}
    assert stats.wasted == {"thinker": made["text_tokens"] - 1, "talker": made["audio_tokens"] - 6}
    assert after["usage"]["input_tokens"] == 2 + 1 + 1  # "Hello", what was heard, "more"


@called("vllm_omni", ServerParams.model_validate({"kv_pool_blocks": 64}))
async def test_a_turn_beyond_the_context_fails_and_the_session_goes_on(caller: Caller) -> None:
    caller.say("session.update", session=MANUAL)
    for tokens in (500, 600, 400):
        caller.ask(input_tokens=tokens, output_tokens=4, reply_audio_s=None)
        await asyncio.sleep(5)
    failed = {"type": "failed", "error": {"code": "context_length_exceeded", "message": TOO_LONG}}
    assert [each["status_details"] for each in caller.done()[1:]] == [failed, {"type": "completed"}]
    assert caller.sessions.stats.turns == {"completed": 2, "failed": 1}
    assert caller.done()[2]["usage"]["input_tokens"] == 500 + 4 + 400


@called("vllm_omni")
async def test_truncate_corrects_how_much_of_a_cut_reply_was_heard(caller: Caller) -> None:
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
    cut, after = caller.done()
    frames = int((0.8 - caller.when("response.output_audio.delta")[0]) / 0.08)  # since the first audio
    assert cut["rehearsal"]["heard"] == {"thinker": frames * 40 // 100, "talker": frames}
    assert after["usage"]["input_tokens"] == 2 + 10 * 40 // 100 + 1  # 800 ms are 10 frames of 100
    [truncated] = caller.of("conversation.item.truncated")
    assert truncated["audio_end_ms"] == 800
    assert caller.errors() == ["invalid_value", "item_not_found", "item_not_found"]


@called("liveserve")
async def test_a_caller_that_hangs_up_frees_its_engine_and_no_other(caller: Caller) -> None:
    other = Caller(caller.sessions)
    for each in (caller, other):
        each.ask(output_tokens=60, reply_audio_s=16.0)
    await asyncio.sleep(1)
    caller.connection.end()
    count = len(caller.events)
    await asyncio.sleep(30)
    caller.say("response.create")  # what was on its way
    assert len(caller.events) == count
    assert [done["status"] for done in other.done()] == ["completed"]
    await other.leave()
    stats = caller.sessions.stats
    assert stats.turns == {"lost": 1, "completed": 1} and stats.replies == 0
    assert 0 < stats.wasted["talker"] < 200
    assert not caller.sessions.server.gateway.monitor.sessions


@called("vllm_omni")
async def test_a_second_response_while_one_is_active_is_an_error(caller: Caller) -> None:
    caller.say("response.create", event_id="mine")
    caller.say("response.create", event_id="again")
    await asyncio.sleep(200)
    assert [done["status"] for done in caller.done()] == ["completed"]
    [error] = caller.of("error")
    assert error["error"]["code"] == "conversation_already_has_active_response"
    assert error["error"]["event_id"] == "again"


def test_the_reply_lengths_of_a_session_do_not_depend_on_the_engine() -> None:
    drawn = []

    async def script(caller: Caller) -> None:
        callers = [caller, Caller(caller.sessions), Caller(caller.sessions)]
        for each in callers:
            each.say("response.create")
        await asyncio.sleep(300)
        drawn.append([each.done()[0]["usage"]["output_token_details"] for each in callers])

    for engine in ("vllm_omni", "liveserve"):
        call(engine, script)
    assert drawn[0] == drawn[1] and len({str(each) for each in drawn[0]}) == 3


@called("vllm_omni")
async def test_a_reply_cancelled_before_its_first_token_leaves_the_user_s_words(caller: Caller) -> None:
    caller.ask("x" * 40)
    caller.say("response.cancel")
    caller.ask("x" * 40, output_tokens=4, reply_audio_s=1.0)
    await asyncio.sleep(5)
    cut, after = caller.done()
    assert cut["status"] == "cancelled" and cut["usage"]["output_tokens"] == 0
    assert cut["rehearsal"]["heard"] == {"thinker": 0, "talker": 0}
    assert after["status"] == "completed" and after["usage"]["input_tokens"] == 20
    assert caller.sessions.stats.wasted == {"thinker": 0, "talker": 0}


@called("vllm_omni_wo", ServerParams.model_validate({"deployment": "llama_8b_1gpu"}))
async def test_a_model_that_does_not_speak_answers_in_text(caller: Caller) -> None:
    caller.say("session.update", session={"type": "realtime", "output_modalities": ["audio"]})
    caller.say("session.update", session=MANUAL)
    caller.append(hiss(1.0))
    caller.say("input_audio_buffer.commit")
    caller.say("response.create")
    await asyncio.sleep(100)
    assert caller.errors() == ["invalid_value"] and "does not speak" in caller.of("error")[0]["error"]["message"]
    assert caller.done()[0]["usage"]["input_tokens"] == 13 and caller.of("response.output_text.delta")
