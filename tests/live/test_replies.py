"""Replies of the OpenAI dialect: each event counts to its reply, in any order and between unknown events."""

import base64
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.live.in_process import Call, calling
from tests.live.strategies import some

NONSENSE = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([[{"a": 1}], {"rate": 8000}])
)
FIELDS = some(**dict.fromkeys(("event_id", "output_index", "obfuscation", "usage", "tokens", "x"), NONSENSE))
OTHERS = "rate_limits.updated", "conversation.item.created", "an.event.of.tomorrow", "response.metrics"
OF_OTHERS = some(**dict.fromkeys(("item", "response", "delta", "audio", "session"), NONSENSE))
BETWEEN = st.lists(st.tuples(st.sampled_from(OTHERS), OF_OTHERS), max_size=2)
SOUND = bytes(range(256)) * 38
SOUND_S = len(SOUND) / 48_000
Events = list[tuple[str, dict[str, Any]]]


@st.composite
def replies(draw: st.DrawFn, name: str, ids: str | None, status: str, created: str) -> Events:
    """A reply. `ids`: which of them its events have; None: not even its begin and its end name it. `created`: when the
    server announces it, before its first audio, after it or never."""
    known = (ids or "").split()
    about = {f"{each}_id": each[0] + name for each in known}
    named = {} if ids is None else {"id": f"r{name}"}
    events: Events = []
    cuts = draw(st.lists(st.integers(1, len(SOUND)), max_size=6))
    for begin, end in pairwise(sorted([0, *cuts, len(SOUND)])):
        delta = base64.b64encode(SOUND[begin:end]).decode()
        if draw(st.booleans()):
            delta = "".join(f"{delta[i : i + 76]}\r\n" for i in range(0, len(delta), 76))
        events += [("response.output_audio.delta", {**draw(FIELDS), **about, "delta": delta}), *draw(BETWEEN)]
    if created == "before" and known == ["item"]:
        events.insert(0, ("response.output_item.added", {"response_id": f"r{name}", "item": {"id": f"i{name}"}}))
    if created != "never":
        events.insert(created == "after", ("response.created", {"response": named}))
    if draw(st.booleans()):
        events.append(("response.output_audio.done", about))
    ends = named if created != "never" or "response" in known else {}
    return [*events, ("response.done", {"response": {**draw(FIELDS), "status": status, **ends}})]


def tell(call: Call, events: Events) -> None:
    for kind, fields in events:
        call.says(kind, **fields)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["response item", "response", "item", "", None]),
    st.sampled_from(["before", "after", "never"]),
    st.data(),
)
@calling
def test_audio_belongs_to_its_reply_in_any_order_of_events(ids: str | None, created: str, data: st.DataObject) -> None:
    """The first is cut after its first audio, and the rest of it comes when the second has been asked for: where its
    events have ids or are announced in any order, also after its end, which may come twice or never."""
    first = data.draw(replies("a", ids, "cancelled", created))
    cut = data.draw(st.sampled_from([k for k, (kind, _) in enumerate(first, 1) if kind.endswith("audio.delta")]))
    call, rest = Call(), first[cut:]
    call.asks(0)
    tell(call, first[:cut])
    heard_s = call.heard.seconds[0]
    call.connection.interrupt(heard_s / 2)
    call.asks(1)
    if created == "before":
        *rest, done = rest
        ends = data.draw(st.sampled_from([[], [done], [done, done]]))
        rest = data.draw(st.permutations([*rest, *ends]))
    tell(call, rest)
    assert call.heard.seconds == {0: heard_s}, "late audio counts to no other reply"
    tell(call, data.draw(replies("b", ids, "completed", created)))
    assert call.heard.seconds == {0: heard_s, 1: pytest.approx(SOUND_S)}
    assert call.heard.ended == [1] and call.heard.reasons == []
    late_s = sum(row["value"] for row in call.events("late_audio"))
    assert late_s == pytest.approx(SOUND_S - heard_s)


@calling
def test_late_audio_counts_to_its_own_reply() -> None:
    call = Call()
    for turn, response in enumerate("ab"):
        call.asks(turn)
        call.audio(0.1, response_id="a", item_id="i")
        call.audio(0.2, response_id=response)
        call.completes(response)
    assert call.heard.seconds == {0: pytest.approx(0.4), 1: pytest.approx(0.2)}


@pytest.mark.parametrize(
    ("items", "played_s", "item", "place_ms"),
    [("aaa", 0.25, "a", 250), ("aabb", 0.1505, "a", 150), ("aabb", 0.2505, "b", 50), ("abab", 0.3505, "b", 150)],
)
@calling
def test_truncate_names_the_item_that_plays_and_the_place_in_it(
    items: str, played_s: float, item: str, place_ms: int
) -> None:
    call = Call()
    call.asks(0)
    for each in items:
        call.audio(0.1, response_id="r", item_id=each)
    call.connection.interrupt(played_s)
    [truncate] = [event for event in call.line.sent if event["type"] == "conversation.item.truncate"]
    assert (truncate["item_id"], truncate["audio_end_ms"]) == (item, place_ms)


def interrupted() -> Call:
    call = Call()
    call.asks(0)
    call.audio(response_id="a", item_id="i")
    call.connection.interrupt(0.05)
    return call


ERRORS = [
    {"type": "invalid_request_error", "code": None, "message": "Cancellation failed: no active response found"},
    {"type": "invalid_request_error", "code": "unsupported_content_type", "message": "Only audio can be truncated"},
    {"type": "invalid_request_error", "code": "invalid_value", "message": "Audio content of 100ms is already shorter"},
    {"code": "item_not_found", "message": "", "event_id": None},
    {"code": "conversation_already_has_active_response", "message": "x"},
    "no such item",
]


@pytest.mark.parametrize("error", ERRORS)
@calling
def test_an_error_about_a_truncate_or_cancel_does_not_end_the_call(error: Any) -> None:
    call = interrupted()
    call.says("error", error=error)
    call.asks(1)
    call.completes("a", "cancelled")
    call.audio(response_id="b")
    call.completes("b")
    assert call.heard.ended == [1] and call.heard.reasons == []
    call.says("error", error={"code": "invalid_value", "message": "about another thing"})
    assert call.heard.reasons == ["error: invalid_value"]


@calling
def test_another_error_ends_the_call_also_after_an_interruption() -> None:
    call = interrupted()
    call.says("error", error={"type": "server_error", "code": None, "message": "out of memory"})
    assert call.heard.reasons == ["error: server_error"]


@calling
def test_audio_in_an_unread_format_fails_the_turn() -> None:
    call = Call()
    call.asks(0)
    call.audio(response_id="a", format="opus")
    assert call.heard.reasons == ["audio as opus, which is not read"] and call.heard.seconds == {}
