"""Calls that a server answers frame by frame, over real sockets."""

import numpy as np
import pandas as pd
import pytest

from harness.request_tables.frame_table import Beat, frame_table
from tests.live.scripted import Outcome, Peer, nobody, play, played
from workloads.errors import UserError
from workloads.generators.content import pcm_for
from workloads.registry import make_trace
from workloads.trace import Trace

FRAME_S = 0.2
OURS = {"rehearsal": {"version": 1, "serves": "frames", "frame_s": FRAME_S}}


def calls(sessions: int = 1, duration_s: float = 1.0) -> Trace:
    params = {"sessions": sessions, "duration_s": duration_s, "frame_s": FRAME_S, "network_ms": 0}
    return make_trace("metronome", params, 0)


def frames_of(out: Outcome) -> pd.DataFrame:
    return frame_table(out.events, pd.DataFrame(out.trace.columns()), Beat(FRAME_S, 0.16, 0.06))


async def greet(peer: Peer) -> None:
    await peer.say("session.created", session=OURS)
    await peer.expect("session.update")
    await peer.say("session.updated", session=OURS)


async def hear(peer: Peer, seconds: float) -> None:
    heard_s = 0.0
    while heard_s < seconds - 1e-9:
        await peer.expect("input_audio_buffer.append")
        heard_s += len(peer.call.pcm[-1]) / 32_000


async def serve(peer: Peer, frames: int = 10**6) -> None:
    """Answers each frame when its audio is whole, and then fails the session or goes on."""
    await greet(peer)
    for frame in range(frames):
        await hear(peer, FRAME_S)
        await peer.say("response.output_text.delta", response_id="r", delta="word")
        await peer.say("rehearsal.frame.done", frame=frame, tokens=3)
    await peer.say("rehearsal.session.failed", reason="its context is full")
    await peer.drain()


def test_each_frame_is_announced_before_its_audio_and_answered():
    out = play(calls(), serve, dialect="rehearsal")
    [call], [session] = out.calls, out.trace.sessions
    assert out.failures.empty
    assert call.of("session.update")[0]["session"]["output_modalities"] == ["text"]
    assert b"".join(call.pcm) == b"".join(b"".join(pcm_for(out.trace, turn, 16_000)) for turn in session.turns)
    hints = [(hint["frame"], hint["output_tokens"]) for hint in call.of("rehearsal.frame")]
    assert hints == [(frame, turn.output_tokens) for frame, turn in enumerate(session.turns)]
    places = [i for i, event in enumerate(call.received) if event["type"] == "rehearsal.frame"]
    assert set(np.diff(places)) == {1 + 10}  # the announcement and 0.2 s of audio in pieces of 20 ms
    kinds = out.events["kind"].value_counts()
    assert [kinds[kind] for kind in ("frame", "frame_out", "admitted")] == [len(hints), len(hints), 1]
    rows = frames_of(out)
    assert rows["status"].tolist() == ["delivered"] * len(hints)
    assert min(rows["latency_s"]) >= 0
    assert call.closed == 1000


def test_each_piece_of_audio_is_due_when_it_has_been_captured():
    out = play(calls(2), serve, dialect="rehearsal")
    for session in out.trace.sessions:
        [ready_s], begin_s = out.times("connected", session.id), session.turns[0].arrival_s or 0.0
        due = out.sends.query("kind == 'audio' and session == @session.id")["due_s"].to_numpy()
        captured_s = begin_s + 0.02 * np.arange(1, len(due) + 1)
        assert due == pytest.approx(np.maximum(ready_s, captured_s))


def test_a_call_that_an_overloaded_server_refuses_is_shed():
    async def full(peer: Peer) -> None:
        await peer.say("session.created", session=OURS)
        await peer.expect("session.update")
        await peer.say("error", error={"type": "server_error", "code": "overloaded", "message": ""})
        await peer.socket.close(1013)

    out = play(calls(3), full, dialect="rehearsal")
    assert out.failures["reason"].tolist() == ["error: overloaded"] * 3
    kinds = out.events["kind"].value_counts()
    assert (kinds["shed"], kinds["session_end"]) == (3, 3) and "admitted" not in kinds


def test_a_failed_session_fails_its_remaining_frames():
    out = play(calls(), lambda peer: serve(peer, 3), dialect="rehearsal")
    assert out.failures["reason"].tolist() == ["error: session failed"]
    rows = frames_of(out)
    assert rows["status"].tolist() == ["delivered"] * 3 + ["failed"] * (len(out.trace) - 3)


def test_a_server_of_turns_is_sent_no_frames():
    async def script(peer: Peer) -> None:
        await peer.say("session.updated", session={"rehearsal": {"serves": "turns"}})
        await peer.drain()

    assert play(calls(), script, dialect="rehearsal").failures["reason"].tolist() == ["serves turns"]
    with pytest.raises(UserError, match="dialect openai: its servers answer turns and not frames"):
        played(calls(), nobody, dialect="openai")
    out = played(calls(), nobody, dialect="rehearsal")
    assert out.events["kind"].tolist() == ["session_start", "session_failed", "session_end"]
