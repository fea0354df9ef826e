"""Errors, garbage and broken connections over real sockets fail their turn and no other session."""

import asyncio

import numpy as np
import pytest

from tests.live.scripted import SPEECH_S, Peer, Script, greet, play, reply, spoken, table


def after_a_reply(then: Script) -> Script:
    """Answers a turn, and does `then` in the next one."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await reply(peer, "a")
        await peer.expect("response.create")
        await then(peer)

    return script


async def _vanish(peer: Peer) -> None:
    await peer.say("response.created", response={"id": "r"})
    await peer.audio("r", 2.0)
    await asyncio.sleep(0.05)
    peer.socket.transport.abort()


async def _fail(peer: Peer) -> None:
    await peer.say("response.created", response={"id": "r"})
    await peer.done("r", "failed", status_details={"error": {"code": "gpu"}})


def error(**fields: str) -> Script:
    return lambda peer: peer.say("error", error={"message": "oh", **fields})


FAILS: dict[str, Script] = {
    "response failed: gpu": _fail,
    "closed 1006": _vanish,
    "garbage": lambda peer: peer.socket.send("not json"),
    "error: server_error": error(type="server_error"),
    "error: invalid_value (audio)": error(code="invalid_value", param="audio"),
    # What a terminal would obey is escaped, and of a long text the begin is enough.
    "error: \\x1b[31m \\x1b]0;t\\x07 \\u202e $5 " + "x" * 92 + "...": error(
        code="\x1b[31m \x1b]0;t\x07\n\u202e $5 " + "x" * 5000
    ),
}


@pytest.mark.parametrize("reason", FAILS)
def test_a_failure_in_a_turn_fails_it_and_ends_the_session(reason: str):
    out = play(spoken(turns=3), after_a_reply(FAILS[reason]), dialect="openai")
    assert out.failures[["session", "turn", "reason"]].to_numpy().tolist() == [[0, 1, reason]]
    assert table(out)["status"].tolist() == ["completed", "failed"]  # and the user hung up
    assert out.kinds()[-2:] == ["turn_failed", "session_end"]
    assert out.times("turn_failed")[0] >= out.failures["t_s"].tolist()[0]


def test_a_connection_that_breaks_while_the_user_speaks_ends_the_turn_at_once():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.pieces(5)
        peer.socket.transport.abort()

    out = play(spoken(), script, dialect="openai")
    [row] = table(out).to_dict("records")
    assert row["status"] == "failed" and np.isnan(row["send_delay_s"])
    assert row["turn_end_s"] - row["turn_start_s"] < SPEECH_S
    assert "commit" not in out.sends["kind"].tolist()


def test_a_broken_connection_fails_no_other_session():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        calls.append(peer)
        if len(calls) == 2:
            peer.socket.transport.abort()
            return
        await reply(peer, "r")
        await peer.drain()

    calls: list[Peer] = []
    out = play(spoken(sessions=3, gap_s=0.2), script, dialect="rehearsal")
    assert table(out)["status"].tolist() == ["completed", "failed", "completed"]
