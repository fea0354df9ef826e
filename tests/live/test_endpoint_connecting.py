"""When users connect over real sockets, which calls are shed or fail, and which traces are refused before the run."""

from typing import Any

import pytest

from tests.live.scripted import Peer, Script, nobody, openai, play, played, spoken, table, typed
from workloads.errors import UserError
from workloads.trace import Trace


def test_users_of_a_schedule_are_connected_before_they_arrive():
    trace = spoken(arrival_s=0.6)
    out = play(trace, openai, dialect="rehearsal", connect_lead_s=0.4)
    assert out.times("connected")[0] < 0.6 == out.times("turn_start")[0]
    closed = play(trace, openai, dialect="rehearsal", connect_lead_s=0.4, client={"c": 1})
    assert closed.times("connected")[0] > 0.6
    assert len(closed.calls) == 1


def test_users_who_arrive_after_the_end_of_the_run_are_not_connected():
    out = play(spoken(sessions=2, gap_s=0.5), openai, dialect="rehearsal", client={"stop_after_s": 0.4})
    assert len(out.calls) == 1 and set(out.events["session"]) == {0}


async def _silent(peer: Peer) -> None:
    await peer.drain()


def status(code: int) -> Any:
    return lambda socket, request: socket.respond(code, "no")


async def _full(peer: Peer) -> None:
    await peer.socket.close(1013, "try again later")


async def _overloaded(peer: Peer) -> None:
    await peer.expect("session.update")
    await peer.say("error", error={"type": "server_error", "code": "overloaded", "message": ""})
    await peer.drain()


@pytest.mark.parametrize(
    ("script", "refuse", "reason"),
    [
        (_silent, status(503), "connect: HTTP status 503"),
        (_silent, status(429), "connect: HTTP status 429"),
        (_full, None, "closed 1013"),
        (_overloaded, None, "error: overloaded"),
    ],
)
@pytest.mark.parametrize("lead_s", [0.0, 0.3])
def test_a_rejected_call_is_shed_and_its_turn_failed(script: Script, refuse: Any, reason: str, lead_s: float):
    trace = spoken(sessions=3, arrival_s=[0.4, 0.45, 0.5])
    out = play(trace, script, refuse=refuse, dialect="openai", connect_lead_s=lead_s)
    assert out.failures["reason"].tolist() == [reason] * 3
    assert sorted(out.failures["session"]) == [0, 1, 2]
    counts = out.events["kind"].value_counts()
    assert [counts[kind] for kind in ("shed", "turn_start", "turn_failed", "session_end")] == [3] * 4
    assert table(out)["status"].tolist() == ["failed"] * 3


def test_a_server_of_frames_fails_a_call_of_turns():
    async def script(peer: Peer) -> None:
        await peer.expect("session.update")
        await peer.say("session.updated", session={"rehearsal": {"serves": "frames"}})
        await peer.drain()

    assert play(spoken(), script, dialect="rehearsal").failures["reason"].tolist() == ["serves frames"]


def test_a_trace_that_cannot_be_played_is_refused_before_the_run():
    trace = spoken()
    changed = Trace.from_columns({**trace.columns(), "audio_s": 0.5}, generator="speech", notes=trace.header.notes)
    with pytest.raises(UserError, match="the trace was changed"):
        played(changed, nobody, dialect="openai")
    with pytest.raises(UserError, match="dialect vllm: its server takes no typed turns"):
        played(typed(), nobody, dialect="vllm", model="q")
    with pytest.raises(UserError, match="MISSING"):
        played(spoken(), nobody, dialect="openai", token_env="MISSING")
