"""Hostile events: a session answers any of them with an error at most, and other sessions go on."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.endpoint.protocol import Refusal, parse
from engines.endpoint.user_turn import MOST_ITEMS, MOST_S
from tests.live.calls import Caller, called, still_open
from tests.live.strategies import some, typed

pytestmark = pytest.mark.slow("plays many random calls")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TYPES = (
    *("session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear"),
    *("conversation.item.create", "conversation.item.truncate", "conversation.item.delete", "response.create"),
    *("response.cancel", "output_audio_buffer.clear", "rehearsal.playback", "rehearsal.frame", "nonsense"),
)
VAD = typed("server_vad", threshold=st.floats(-1, 2), silence_duration_ms=st.integers(-5, 900))
INPUT = some(turn_detection=st.none() | VAD, format=st.fixed_dictionaries({"rate": st.sampled_from((8_000, 16_000))}))
TEXT = st.fixed_dictionaries({"type": st.just("input_text"), "text": st.text()})
LENGTHS = st.dictionaries(st.sampled_from(("output_tokens", "reply_audio_s", "input_tokens")), st.integers(-1, 50))
FIELDS = {
    "session": st.fixed_dictionaries({"audio": st.fixed_dictionaries({"input": INPUT})}),
    "audio": st.sampled_from(("AAAA", "A" * 6400, "A" * 64_000, "?")),
    "item": typed("message", role=st.sampled_from(("user", "system", "x")), content=st.lists(TEXT)),
    "response": st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"rehearsal": LENGTHS.map(json.dumps)})}),
    "item_id": st.sampled_from(("item_0_1", "item_0_2", "item_0_4")),
    "response_id": st.sampled_from(("resp_0_0", "resp_0_1")),
    "playing": st.booleans(),
    "frame": st.integers(-1, 3),
    **dict.fromkeys(("audio_end_ms", "played_ms"), st.integers(-1, 2000)),
    **dict.fromkeys(("output_tokens", "content"), st.integers(-1, 9)),
}
TYPE = {"type": st.sampled_from(TYPES)}
WILD = st.fixed_dictionaries(TYPE, optional={name: each | JSON for name, each in FIELDS.items()})
EVENT = st.fixed_dictionaries(TYPE, optional=FIELDS) | WILD
STEPS = st.lists(st.tuples(EVENT, st.sampled_from((0.0, 0.0, 0.01, 0.3))), min_size=20, max_size=40)


@given(st.text(max_size=40) | JSON.map(json.dumps) | EVENT.map(json.dumps))
@settings(max_examples=300)
def test_any_text_is_an_event_or_a_refusal(message: str) -> None:
    try:
        assert isinstance(parse(message).type, str)
    except Refusal as refusal:
        assert refusal.code in ("invalid_value", "invalid_json") and "no event" in str(refusal)


DEEP = '{"x": ' * 100_000


def asking(**response: Any) -> dict[str, Any]:
    return {"type": "response.create", "response": response}


def creating(**item: Any) -> dict[str, Any]:
    text = {"type": "input_text", "text": "x"}
    message = {"type": "message", "role": "user", "content": [text], **item}
    return {"type": "conversation.item.create", "item": message}


RATE = {"type": "realtime", "audio": {"input": {"format": {"rate": 2**65}}}}
WRONG: dict[str, dict[str, Any] | str] = {
    "nested without end": f'{{"type": "session.update", "session": {DEEP}',
    "half a pair of surrogates": r'{"type": "session.update", "event_id": "\ud83d"}',
    "more digits than a number has": '{"type": "rehearsal.playback", "played_ms": 1' + "0" * 5000 + "}",
    "a rate beyond 64 bits": {"type": "session.update", "session": RATE},
    "a limit in words": asking(max_output_tokens="many"),
    "metadata that is no text": asking(metadata={"a": 1}),
    "a hint that is no text": asking(metadata={"rehearsal": {}}),
    "a hint without end": asking(metadata={"rehearsal": DEEP}),
    "a hint of more than all speech": asking(metadata={"rehearsal": '{"reply_audio_s": 1e300}'}),
    "content in content": creating(content=[[{"type": "input_text"}]]),
    "a part of an odd type": creating(content=[{"type": {}, "text": ""}]),
}


@called("liveserve")
async def test_a_malformed_event_is_an_error_and_the_session_goes_on(caller: Caller) -> None:
    for event in WRONG.values():
        caller.connection.receive(event if isinstance(event, str) else json.dumps(event))
    not_json = "nested without end", "half a pair of surrogates"
    wanted = {name: "invalid_json" if name in not_json else "invalid_value" for name in WRONG}
    assert dict(zip(WRONG, caller.errors(), strict=True)) == wanted
    caller.ask(output_tokens=2, reply_audio_s=1.0)
    await asyncio.sleep(20)
    assert [done["status"] for done in caller.done()] == ["completed"]


Steps = list[tuple[dict[str, Any], float]]


async def abuse(caller: Caller, steps: Steps, neighbour: Caller) -> None:
    for event, pause_s in steps:
        caller.connection.receive(json.dumps(event))
        await asyncio.sleep(pause_s)
    caller.connection.end()
    await asyncio.sleep(20)
    neighbour.connection.end()
    await asyncio.sleep(20)
    assert not still_open(caller.sessions) and caller.sessions.stats.replies == 0
    for engine in caller.sessions.server.engines:
        assert engine.scheduler.free_blocks == engine.scheduler.allocatable_blocks


@given(STEPS)
@settings(max_examples=25)
@called("liveserve")
async def test_any_sequence_of_events_leaves_a_server_of_turns_empty(caller: Caller, steps: Steps) -> None:
    neighbour = Caller(caller.sessions)
    neighbour.ask(output_tokens=20, reply_audio_s=4.0)
    await abuse(caller, steps, neighbour)
    assert [done["status"] for done in neighbour.done()] == ["completed"]


@given(STEPS)
@settings(max_examples=10)
@called("metronome")
async def test_any_sequence_of_events_leaves_a_server_of_frames_empty(caller: Caller, steps: Steps) -> None:
    await abuse(caller, steps, Caller(caller.sessions))


@called("vllm_omni")
async def test_input_before_a_reply_is_limited_in_seconds_and_in_items(caller: Caller) -> None:
    caller.say("session.update", session={"audio": {"input": {"turn_detection": None}}})
    for _ in range(round(MOST_S) + 5):
        caller.append(np.zeros(24_000, np.int16))
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    for _ in range(MOST_ITEMS + 5):
        caller.say("conversation.item.create", item=item)
    caller.connection.receive(b"\x00")
    errors = caller.errors()
    assert errors == ["buffer_full"] * 5 + ["invalid_value"] * 5 + ["invalid_json"]
