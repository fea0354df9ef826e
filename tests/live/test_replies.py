"""Which reply an event is about, and how much of it came: however its audio is split, in any allowed order of events,
with any unknown fields and events in between."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.events.log import EventLog
from harness.live.endpoints.base_endpoint import ConnectionContext
from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.duplex_endpoint import DuplexConnection
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams
from tests.live.in_process import Call, Line, calling
from tests.live.strategies import some

NONSENSE = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([{"a": 1}]) | st.just({"rate": 8000})
)
FIELDS = some(
    event_id=NONSENSE, output_index=NONSENSE, obfuscation=NONSENSE, usage=NONSENSE, tokens=NONSENSE, x=NONSENSE
)
BETWEEN = st.lists(
    st.tuples(
        st.sampled_from(
            ["rate_limits.updated", "conversation.item.created", "an.event.of.tomorrow", "response.metrics"]
        ),
        some(item=NONSENSE, response=NONSENSE, delta=NONSENSE, audio=NONSENSE, session=NONSENSE),
    ),
    max_size=2,
)
CUTS = st.lists(st.integers(1, 4800), max_size=6)


@st.composite
def replies(
    draw: st.DrawFn, name: str, ids: str | None, status: str, created: str
) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """A reply as events, and the bytes of its audio. `ids`: which of them its events have; None: not even its begin and
    its end name it. `created`: when the server announces it, before its first audio, after it or never."""
    size = 9600
    about = {"response_id": f"r{name}", "item_id": f"i{name}"}
    named = {} if ids is None else {"id": f"r{name}"}
    ids = ids or ""
    about = {key: value for key, value in about.items() if key.split("_")[0] in ids.split()}
    created_event = ("response.created", {"response": named})
    at, events = 0, [created_event] if created == "before" else []
    if "item" in ids and "response" not in ids and created == "before":
        events.append(("response.output_item.added", {"response_id": f"r{name}", "item": {"id": f"i{name}"}}))
    for cut in [*draw(CUTS), size]:
        piece = bytes(range(256)) * 40
        piece = piece[at : min(size, at + cut)]
        at += len(piece)
        delta = base64.b64encode(piece).decode()
        if draw(st.booleans()):
            delta = "\r\n".join(delta[i : i + 76] for i in range(0, len(delta), 76)) + "\r\n"
        events.append(("response.output_audio.delta", {**draw(FIELDS), **about, "delta": delta}))
        events += draw(BETWEEN)
        if created == "after" and created_event not in events:
            events.append(created_event)
    if draw(st.booleans()):
        events.append(("response.output_audio.done", about))
    done = {"status": status, **(named if created != "never" or "response" in ids else {})}
    events.append(("response.done", {"response": {**draw(FIELDS), **done}}))
    return events, size


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["response item", "response", "item", "", None]),
    st.sampled_from(["before", "after", "never"]),
    st.data(),
)
@calling
def test_a_reply_is_the_same_however_it_is_told(ids: str | None, created: str, data: st.DataObject) -> None:
    """The first is cut after its first audio, and what is left of it comes when the second has been asked for: where
    its events have ids or are announced in any order, also after its end, which may come twice or never."""
    call = Call()
    (first, size), (second, _) = (
        data.draw(replies(name, ids, status, created)) for name, status in (("a", "cancelled"), ("b", "completed"))
    )
    call.asks(0)
    sounds = [k for k, (kind, _) in enumerate(first) if kind == "response.output_audio.delta"]
    cut = sounds[data.draw(st.integers(0, len(sounds) - 1))]
    for kind, fields in first[: cut + 1]:
        call.says(kind, **fields)
    heard_s = call.heard.seconds[0]
    call.connection.interrupt(heard_s / 2)
    call.asks(1)
    rest = first[cut + 1 :]
    if created == "before":
        *rest, done = rest
        ends = data.draw(st.sampled_from([[], [done], [done, done]]))
        rest = data.draw(st.permutations([*rest, *ends]))
    for kind, fields in rest:
        call.says(kind, **fields)
    assert call.heard.seconds == {0: heard_s}, "what comes too late is nobody else's"
    for kind, fields in second:
        call.says(kind, **fields)
    assert call.heard.seconds[1] == pytest.approx(size / 48_000) and call.heard.seconds[0] == heard_s
    assert call.heard.ended == [1] and call.heard.reasons == []
    late = [row for row in call.connection.context.log.events().to_pylist() if row["kind"] == "late_audio"]
    assert sum(row["value"] for row in late) == pytest.approx(size / 48_000 - heard_s)


@calling
def test_audio_of_a_reply_that_has_ended_is_not_counted_to_the_next() -> None:
    call = Call()
    for turn, response in enumerate("ab"):
        call.asks(turn)
        call.audio(0.1, response_id="a", item_id="i")
        call.audio(0.2, response_id=response)
        call.says("response.done", response={"id": response, "status": "completed"})
    assert call.heard.seconds == {0: pytest.approx(0.4), 1: pytest.approx(0.2)}


@calling
def test_an_interruption_names_the_item_that_is_played_and_the_place_in_it() -> None:
    def cut(played_s: float, *items: str) -> tuple[str, int]:
        call = Call()
        call.asks(0)
        for item in items:
            call.audio(0.1, response_id="r", item_id=item)
        call.connection.interrupt(played_s)
        [truncate] = [event for event in call.line.sent if event["type"] == "conversation.item.truncate"]
        return truncate["item_id"], truncate["audio_end_ms"]

    assert cut(0.25, "a", "a", "a") == ("a", 250)
    assert cut(0.1505, "a", "a", "b", "b") == ("a", 150)
    assert cut(0.2505, "a", "a", "b", "b") == ("b", 50)
    assert cut(0.3505, "a", "b", "a", "b") == ("b", 150)


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
def test_an_error_about_our_interruption_does_not_end_the_call(error: Any) -> None:
    call = Call()
    call.asks(0)
    call.audio(response_id="a", item_id="i")
    call.connection.interrupt(0.05)
    call.says("error", error=error)
    call.asks(1)
    call.says("response.done", response={"id": "a", "status": "cancelled"})
    call.audio(response_id="b")
    call.says("response.done", response={"id": "b", "status": "completed"})
    assert call.heard.ended == [1] and call.heard.reasons == []
    call.says("error", error={"code": "invalid_value", "message": "about another thing"})
    assert call.heard.reasons == ["error: invalid_value"]


@calling
def test_an_error_of_the_server_s_own_ends_it_also_after_an_interruption() -> None:
    call = Call()
    call.asks(0)
    call.audio(response_id="a", item_id="i")
    call.connection.interrupt(0.05)
    call.says("error", error={"type": "server_error", "code": None, "message": "out of memory"})
    assert call.heard.reasons == ["error: server_error"]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed"}, None),
        ({"status": "incomplete", "status_details": {"reason": "max_output_tokens"}}, None),
        (
            {"status": "incomplete", "status_details": {"reason": "content_filter"}},
            "response incomplete: content_filter",
        ),
        ({"status": "incomplete"}, "response incomplete"),
        (
            {"status": "cancelled", "status_details": {"reason": "client_cancelled"}},
            "response cancelled: client_cancelled",
        ),
        (
            {"status": "failed", "status_details": {"error": {"code": "rate_limit_exceeded"}}},
            "response failed: rate_limit_exceeded",
        ),
    ],
)
@pytest.mark.parametrize("sound", [True, False])
@calling
def test_a_reply_is_complete_only_where_the_server_says_so(sound: bool, response: Any, reason: str | None) -> None:
    """One that ends at its longest is, as a text is whose finish reason is length; one without anything is not."""
    call = Call()
    call.asks(0)
    if sound:
        call.audio(response_id="a")
    call.says("response.done", response={"id": "a", **response})
    reason = reason or (None if sound else "no output")
    assert call.heard.reasons == ([] if reason is None else [reason]) and call.heard.ended == (
        [0] if reason is None else []
    )


@calling
def test_audio_that_is_not_read_fails_the_turn_and_is_not_measured() -> None:
    call = Call()
    call.asks(0)
    call.audio(response_id="a", format="opus")
    assert call.heard.reasons == ["audio as opus, which is not read"] and call.heard.seconds == {}


class Overhears:
    """A user on an open microphone who keeps the samples of each reply."""

    def __init__(self) -> None:
        self.pcm: dict[int, bytes] = {}
        self.ended: list[int] = []

    def reply_begun(self, reply: int, at_s: float) -> None:
        self.pcm[reply] = b""

    def audio(self, reply: int, seconds: float, at_s: float, pcm: bytes) -> None:
        self.pcm[reply] += pcm

    def reply_done(self, reply: int, at_s: float) -> None:
        self.ended.append(reply)


@calling
def test_an_open_microphone_hears_each_reply_s_own_samples_however_they_are_cut() -> None:
    dialect = dialect_of(TargetParams(url="ws://h/v1/realtime", dialect="openai", turn_detection="server"))
    context = ConnectionContext(dialect, "turns", EventLog(), SendLog(), FailureLog(), 0)
    connection, heard = DuplexConnection(context, 0, None, 0.02), Overhears()  # type: ignore[arg-type]
    connection._socket = Line()  # type: ignore[assignment]
    connection.attach(heard)

    def says(kind: str, **fields: Any) -> None:
        connection.message(json.dumps({"type": kind, **fields}).encode(), 0.0)

    def audio(data: bytes, **about: Any) -> None:
        says("response.output_audio.delta", delta=base64.b64encode(data).decode(), **about)

    says("session.updated", session={})
    audio(b"\1\2\3", response_id="a")
    says("response.created", response={"id": "a"})
    audio(b"\4\5\6", response_id="a")
    says("response.done", response={"id": "a", "status": "completed"})
    audio(b"\x80\xff", format="g711_ulaw")
    audio(b"\7\7", response_id="a")
    says("response.done", response={"status": "completed"})
    assert heard.pcm == {0: b"\1\2\3\4\5\6\7\7", 1: (32124).to_bytes(2, "little") + bytes(2)}
    assert heard.ended == [0, 1]
