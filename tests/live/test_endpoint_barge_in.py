"""Users who interrupt over real sockets: the reply is cut, and its heard and wasted tokens are counted."""

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.live.scripted import PACKET_S, PIECES, Outcome, Peer, Script, greet, play, reply, spoken, table

CUT_S: dict[str, Any] = {"barge_in_after_s": [0.3, np.nan]}
"""Of two turns, the first is interrupted."""


def cutting(**fields: Any) -> Script:
    """Sends 1 s of audio at once; after the interruption 0.5 s more and the end, whose response has these fields."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await peer.say("response.created", response={"id": "resp_0"})
        await peer.text("resp_0")
        for _ in range(10):
            await peer.audio("resp_0")
        await peer.expect("response.cancel")
        await peer.audio("resp_0", 0.5)
        await peer.text("resp_0")
        await peer.done("resp_0", "cancelled", text=20, audio=100, **fields)
        await peer.expect("response.create")
        await reply(peer, "resp_1")
        await peer.drain()

    return script


def of_both_stages(out: Outcome, kind: str) -> list[list[float]]:
    return [out.values(kind, "entry"), out.values(kind, "talker")]


def test_a_barge_in_cancels_the_reply_and_its_made_and_heard_tokens_are_logged():
    script = cutting(rehearsal={"heard": {"thinker": 5, "talker": 30}})
    out = play(spoken(turns=2, **CUT_S), script, dialect="rehearsal")
    assert out.failures.empty
    report, cancel = [event for event in out.calls[0].received if event.get("response_id") == "resp_0"][-2:]
    [heard_s] = out.values("barge_in")
    assert (report["type"], report["playing"], report["done"]) == ("rehearsal.playback", False, False)
    assert report["played_ms"] == pytest.approx(1e3 * heard_s, abs=1e-3)
    assert cancel["type"] == "response.cancel"
    assert out.values("late_audio") == [0.5] and sum(out.values("audio")) == pytest.approx(1.3)
    assert of_both_stages(out, "abort") == [[20], [100]] and of_both_stages(out, "heard") == [[5], [30]]
    first, second = table(out).to_dict("records")
    assert (first["status"], second["status"]) == ("barged_in", "completed")
    assert (first["generated_talker"], first["heard_talker"]) == (100, 30)
    assert second["audio_s"] == pytest.approx(0.3)


def test_heard_tokens_that_a_server_does_not_report_follow_the_played_share_of_the_audio():
    out = play(spoken(turns=2, **CUT_S), cutting(), dialect="openai")
    [played_s] = out.values("barge_in")
    [truncate] = out.calls[0].of("conversation.item.truncate")
    assert truncate["item_id"] == "item_resp_0"
    assert truncate["audio_end_ms"] == int(1e3 * played_s + 1e-6)
    received_s = 10 * PACKET_S + 0.5  # the script sends ten packets before the cancel and half a second after it
    share = played_s / received_s
    text_tokens, audio_tokens = 20, 100  # the usage of the cancelled reply
    assert out.values("heard", "entry") == [int(text_tokens * share)]
    assert out.values("heard", "talker") == [int(audio_tokens * share)]


def test_heard_tokens_are_at_most_the_made_ones():
    script = cutting(rehearsal={"heard": {"thinker": 500, "talker": 500}})
    out = play(spoken(turns=2, **CUT_S), script, dialect="rehearsal")
    assert of_both_stages(out, "heard") == [[20], [100]]


@pytest.mark.parametrize("detector", ["client", "server"])
def test_a_session_stays_open_for_the_end_of_its_last_cut_reply(detector: str):
    """A server with its own turn detection gets the interruption too: else it hears the next turn over the reply."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        await (peer.pieces(20) if detector == "server" else peer.expect("response.create"))
        await peer.say("response.created", response={"id": "resp_0"})
        await peer.audio("resp_0", 2.0)
        await peer.expect("response.cancel")
        await asyncio.sleep(0.3)
        await peer.done("resp_0", "cancelled", audio=50, rehearsal={"heard": {"thinker": 1, "talker": 2}})
        await peer.drain()

    out = play(spoken(barge_in_after_s=0.1), script, dialect="rehearsal", turn_detection=detector)
    assert (out.values("abort", "talker"), out.values("heard", "talker")) == ([50], [2])
    assert out.times("session_end")[0] < out.times("abort")[0]
    assert out.failures.empty and out.calls[0].closed == 1000


def test_a_user_of_a_server_without_interruptions_hangs_up_and_calls_again():
    async def script(peer: Peer) -> None:
        await peer.say("session.created", id="s")
        await peer.expect("input_audio_buffer.commit")
        await peer.expect("input_audio_buffer.commit")
        for _ in range(10):
            await peer.audio("", response_id=None, item_id=None)
        await peer.drain()

    trace = spoken(turns=2, barge_in_after_s=0.2)
    out = play(trace, script, dialect="vllm", model="q")
    assert out.failures.empty
    assert [call.closed for call in out.calls] == [1000, 1000]
    assert all(len(call.pcm) == PIECES for call in out.calls)
    assert len(out.values("connected")) == 2
    assert table(out)["status"].tolist() == ["barged_in", "barged_in"]


@pytest.mark.parametrize("name", ["openai", "rehearsal"])
def test_a_reply_that_was_complete_can_be_cut_while_it_plays(name: str):
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await reply(peer, "resp_0", packets=20)
        await peer.expect("response.cancel" if name == "rehearsal" else "conversation.item.truncate")
        if name == "rehearsal":
            await peer.say("rehearsal.heard", response_id="resp_0", heard={"thinker": 3, "talker": 7})
        else:
            await peer.say("error", error={"code": "response_cancel_not_active"})
            await peer.say("error", error={"code": "invalid_value", "event_id": "interrupt-truncate"})
        await peer.drain()

    out = play(spoken(barge_in_after_s=0.3), script, dialect=name)
    assert out.failures.empty and out.calls[0].closed == 1000
    assert out.values("finish", "talker") == [40]
    [heard_s] = out.values("barge_in")
    assert out.values("heard", "talker") == [7 if name == "rehearsal" else int(40 * heard_s / 2.0)]
    assert bool(out.calls[0].of("response.cancel")) == (name == "rehearsal")
