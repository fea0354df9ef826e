"""Whole calls over real sockets against small servers of each dialect: what is sent, what is heard, what fails."""

import asyncio
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness import clock
from harness.client.population import serve_population
from harness.live.client.endpoint import make_endpoint
from harness.live.client.failure_log import FailureLog
from harness.live.client.send_log import SendLog
from harness.live.target import TargetParams
from harness.log import EventLog
from harness.metrics.requests import request_table
from tests.live.scripted import SPEECH_S, Peer, Script, greet, play, spoken, typed
from workloads.audio.content import pcm_for
from workloads.errors import UserError
from workloads.trace import Trace

PIECES = 17  # of 20 ms in an utterance of 0.33 s


def table(outcome: Any) -> pd.DataFrame:
    return request_table(outcome.events, pd.DataFrame(outcome.trace.columns()))


async def reply(peer: Peer, response: str, packets: int = 3) -> None:
    """An ordinary reply in the events of OpenAI's protocol."""
    await peer.say("response.created", response={"id": response, "status": "in_progress"})
    await peer.say("rate_limits.updated", rate_limits=[])
    await peer.text(response)
    for _ in range(packets):
        await peer.audio(response)
    await peer.say("response.output_audio.done", response_id=response)
    await peer.done(response)


async def openai(peer: Peer) -> None:
    await greet(peer)
    turn = 0
    while True:
        await peer.expect("response.create")
        await reply(peer, f"resp_{turn}")
        turn += 1


async def vllm_omni(peer: Peer) -> None:
    await peer.expect("session.update")
    await peer.say("session.created", session={"id": "s"}, server_event_seq=1)
    turn = 0
    while True:
        await peer.expect("input_audio_buffer.commit")
        await reply(peer, f"resp_{turn}")
        turn += 1


async def vllm(peer: Peer, audio: bool = False) -> None:
    await peer.say("session.created", id="sess-1", created=1)
    await peer.expect("session.update")
    while True:
        await peer.expect("input_audio_buffer.commit")
        await peer.expect("input_audio_buffer.append")
        await peer.say("transcription.delta", delta="already")
        assert (await peer.expect("input_audio_buffer.commit"))["final"]
        await peer.say("transcription.delta", delta="word")
        if audio:
            await peer.audio("", audio="", response_id=None, item_id=None, sample_rate_hz=16_000, rate=16_000)
        await peer.say("transcription.done", text="word", usage={"completion_tokens": 6})
        if audio:
            await peer.audio("", response_id=None, item_id=None, sample_rate_hz=16_000, rate=16_000)
            await peer.say("response.output_audio.done", has_audio=True)


SERVERS: dict[str, tuple[Script, dict[str, Any]]] = {
    "openai": (openai, {}),
    "rehearsal": (openai, {}),
    "vllm_omni": (vllm_omni, {"model": "q"}),
    "vllm": (vllm, {"model": "q"}),
}
WHOLE = [
    "session_start",
    *2 * ["turn_start", "turn_end", "first_text", "reply_done", "playback_done", "turn_done"],
]
MUTE = ["session_start", *2 * ["turn_start", "turn_end", "first_text", "reply_done", "turn_done"]]


@pytest.mark.parametrize("name", SERVERS)
def test_a_call_in_every_dialect(name: str):
    script, target = SERVERS[name]
    out = play(spoken(turns=2), script, dialect=name, **target)
    assert out.failures.empty
    assert out.kinds() == [*(MUTE if name == "vllm" else WHOLE), "session_end"]
    [call] = out.calls
    assert call.closed == 1000
    rate = 24_000 if name == "openai" else 16_000
    turns = out.trace.sessions[0].turns
    assert len(call.pcm) == 2 * PIECES
    for begin, turn in zip((0, PIECES), turns, strict=True):
        said = b"".join(call.pcm[begin : begin + PIECES])
        assert said == b"".join(pcm_for(out.trace, turn, rate))[: 2 * round(SPEECH_S * rate)]
        assert [len(pcm) for pcm in call.pcm[begin : begin + PIECES]] == [rate // 25] * 16 + [rate // 50]
    assert len(out.values("connected")) == 1 and out.values("connected")[0] > 0
    done = table(out)
    assert done["status"].tolist() == ["completed"] * 2
    if name == "vllm":
        assert done["generated_thinker"].tolist() == [6, 6] and done["generated_talker"].isna().all()
        return
    assert out.values("audio") == [0.1] * 6
    assert done["audio_s"].tolist() == pytest.approx([0.3, 0.3])
    assert out.values("finish", "thinker") == [10, 10] and out.values("finish", "talker") == [40, 40]
    assert done["heard_talker"].tolist() == [40, 40]


def test_the_commit_follows_the_last_audio_and_playback_is_reported():
    out = play(spoken(), openai, dialect="rehearsal", client={"ack_s": 0.04})
    [call] = out.calls
    kinds = [event["type"] for event in call.received]
    commit = kinds.index("input_audio_buffer.commit")
    assert kinds[commit - 1] == "input_audio_buffer.append" and kinds[commit + 1] == "response.create"
    assert "input_audio_buffer.append" not in kinds[commit:]
    reports = call.of("rehearsal.playback")
    played = [report["played_ms"] for report in reports]
    assert len(reports) > 4 and played == sorted(played)
    assert reports[-1] == {
        "type": "rehearsal.playback",
        "response_id": "resp_0",
        "played_ms": 300,
        "playing": False,
        "done": True,
    }
    assert not any(report["done"] for report in reports[:-1])
    hint = json.loads(call.of("response.create")[0]["response"]["metadata"]["rehearsal"])
    assert hint["output_tokens"] == 7 and hint["reply_audio_s"] == 0.3
    [update] = call.of("session.update")
    assert update["session"]["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 16_000},
        "turn_detection": None,
    }


def test_every_send_is_written_down_with_its_due_time():
    out = play(spoken(sessions=2, gap_s=0.1), openai, dialect="rehearsal")
    sends = out.sends
    counts = sends.groupby(["session", "kind"], observed=True).size()
    for session, begin_s in ((0, 0.05), (1, 0.15)):
        assert counts[session, "audio"] == PIECES
        assert [counts[session, kind] for kind in ("session", "commit", "goodbye")] == [1, 1, 1]
        mine = sends[sends["session"] == session]
        due = mine[mine["kind"] == "audio"]["due_s"].to_numpy()
        pieces = begin_s + 0.02 * np.arange(1, PIECES + 1)
        assert due == pytest.approx(np.minimum(pieces, begin_s + SPEECH_S), abs=1e-9)
        commit = mine[mine["kind"] == "commit"]
        assert commit["due_s"].tolist() == pytest.approx([begin_s + SPEECH_S])
    assert (sends["slip_s"] >= 0).all()


def test_pieces_of_another_length():
    out = play(spoken(), openai, dialect="rehearsal", chunk_ms=100)
    assert [len(pcm) // 32 for pcm in out.calls[0].pcm] == [100, 100, 100, 30]


def test_sessions_that_say_the_same_share_their_messages():
    from harness.live.client.microphone import SpeechMessages
    from harness.live.dialects import dialect_of

    trace = spoken(sessions=30)
    sounds = SpeechMessages(trace, dialect_of(TargetParams(url="ws://x/y", dialect="openai")), 0.02)
    sounds.encode()
    made = {id(message) for session in trace.sessions for message in sounds.of(session.turns[0])}
    assert len(made) <= 3 * PIECES


def test_users_who_come_as_scheduled_are_connected_before():
    trace = spoken(arrival_s=0.6)
    out = play(trace, openai, dialect="rehearsal", connect_lead_s=0.4)
    assert out.times("connected")[0] < 0.6 == out.times("turn_start")[0]
    closed = play(trace, openai, dialect="rehearsal", connect_lead_s=0.4, client={"c": 1})
    assert closed.times("connected")[0] > 0.6
    assert len(closed.calls) == 1


def test_nobody_calls_who_would_come_too_late():
    out = play(spoken(sessions=2, gap_s=0.5), openai, dialect="rehearsal", client={"stop_after_s": 0.4})
    assert len(out.calls) == 1 and set(out.events["session"]) == {0}


def test_what_was_due_before_the_session_was_ready_goes_out_then():
    async def slow(peer: Peer) -> None:
        await peer.expect("session.update")
        await asyncio.sleep(0.6)  # beyond the end of the speech
        await peer.say("session.updated", session={})
        await peer.expect("response.create")
        await reply(peer, "resp_0")
        await peer.drain()

    out = play(spoken(), slow, dialect="openai", connect_lead_s=0)
    assert out.kinds()[-3:] == ["playback_done", "turn_done", "session_end"]
    [call] = out.calls
    assert [event["type"] for event in call.received[1:]].index("input_audio_buffer.commit") == PIECES
    audio = out.sends[out.sends["kind"] == "audio"]
    ready_s = out.times("connected")[0]
    assert (audio["due_s"] == ready_s).all()  # late from then on, not from before
    assert out.sends[out.sends["kind"] == "commit"]["due_s"].tolist() == [ready_s]


def cutting(status: str = "cancelled", **fields: Any) -> Script:
    """Speaks faster than it is listened to, until it is interrupted, and a packet too long."""

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
        await peer.done("resp_0", status, text=20, audio=100, **fields)
        await peer.expect("response.create")
        await reply(peer, "resp_1")
        await peer.drain()

    return script


def test_a_barge_in_cancels_and_the_waste_is_known():
    trace = spoken(turns=2, barge_in_after_s=[0.3, np.nan])
    told = cutting(rehearsal={"heard": {"thinker": 5, "talker": 30}})
    out = play(trace, told, dialect="rehearsal")
    assert out.failures.empty
    [call] = out.calls
    cancel = [event["type"] for event in call.received].index("response.cancel")
    report = call.received[cancel - 1]
    assert report["type"] == "rehearsal.playback" and not report["playing"] and not report["done"]
    [heard_s] = out.values("barge_in")
    assert report["played_ms"] == pytest.approx(1e3 * heard_s, abs=1e-3)
    assert call.received[cancel]["response_id"] == "resp_0"
    assert out.values("late_audio") == [0.5]
    assert sum(out.values("audio")) == pytest.approx(1.3)
    assert out.values("abort", "thinker") == [20] and out.values("abort", "talker") == [100]
    assert out.values("heard", "thinker") == [5] and out.values("heard", "talker") == [30]
    first, second = table(out).to_dict("records")
    assert (first["status"], second["status"]) == ("barged_in", "completed")
    assert (first["generated_talker"], first["heard_talker"]) == (100, 30)
    assert out.times("barge_in")[0] <= second["turn_start_s"] < out.times("late_audio")[0] + 1
    assert second["audio_s"] == pytest.approx(0.3)


def test_where_a_server_does_not_tell_what_was_heard_it_is_the_share_of_the_audio():
    trace = spoken(turns=2, barge_in_after_s=[0.3, np.nan])
    out = play(trace, cutting(), dialect="openai")
    [heard_s] = out.values("barge_in")
    [truncate] = out.calls[0].of("conversation.item.truncate")
    assert truncate["item_id"] == "item_resp_0"
    assert truncate["audio_end_ms"] == int(1e3 * heard_s + 1e-6)
    share = heard_s / 1.5  # ten packets before the cut, and half a second after it
    assert out.values("heard", "talker") == [int(100 * share)]
    assert out.values("heard", "thinker") == [int(20 * share)]


def test_no_server_can_claim_that_more_was_heard_than_made():
    trace = spoken(turns=2, barge_in_after_s=[0.2, np.nan])
    out = play(trace, cutting(rehearsal={"heard": {"thinker": 500, "talker": 500}}), dialect="rehearsal")
    assert out.values("heard", "talker") == [100] and out.values("heard", "thinker") == [20]
    table(out)


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
            error = {"type": "invalid_request_error", "code": "response_cancel_not_active", "message": ""}
            await peer.say("error", error=error)
            late = {**error, "code": "invalid_value", "event_id": "interrupt-truncate"}
            await peer.say("error", error=late)
        await peer.drain()

    out = play(spoken(barge_in_after_s=0.3), script, dialect=name)
    assert out.failures.empty and out.calls[0].closed == 1000
    assert out.values("finish", "talker") == [40]
    [heard_s] = out.values("barge_in")
    expected = 7 if name == "rehearsal" else int(40 * heard_s / 2.0)
    assert out.values("heard", "talker") == [expected]
    assert bool(out.calls[0].of("response.cancel")) == (name == "rehearsal")


def test_the_last_cut_reply_is_waited_for():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await peer.say("response.created", response={"id": "resp_0"})
        await peer.audio("resp_0", 2.0)
        await peer.expect("response.cancel")
        await asyncio.sleep(0.3)
        await peer.done("resp_0", "cancelled", audio=50)
        await peer.drain()

    out = play(spoken(barge_in_after_s=0.1), script, dialect="rehearsal")
    assert out.values("abort", "talker") == [50]
    assert out.times("session_end")[0] < out.times("abort")[0]
    assert out.failures.empty and out.calls[0].closed == 1000


def test_a_server_that_listens_by_itself_is_told_that_the_user_left():
    """It would hear the next turn over the reply, and there is none."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        for _ in range(20):
            await peer.expect("input_audio_buffer.append")
        await peer.say("response.created", response={"id": "resp_0"})
        await peer.audio("resp_0", 2.0)
        await peer.expect("response.cancel")
        await peer.done("resp_0", "cancelled", audio=50, rehearsal={"heard": {"thinker": 1, "talker": 2}})
        await peer.drain()

    out = play(spoken(barge_in_after_s=0.1), script, dialect="rehearsal", turn_detection="server")
    assert out.failures.empty
    assert (out.values("abort", "talker"), out.values("heard", "talker")) == ([50], [2])


def test_who_interrupts_a_server_without_a_message_for_it_hangs_up_and_calls_again():
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


def test_vllm_omni_s_turn_based_sessions_speak_beyond_their_transcript():
    async def script(peer: Peer) -> None:
        await vllm(peer, audio=True)

    out = play(spoken(), script, dialect="vllm", model="q")
    assert out.values("audio") == [0.1, 0.1]  # at the event's own rate
    assert out.kinds()[-4:] == ["reply_done", "playback_done", "turn_done", "session_end"]
    assert out.values("finish", "thinker") == [6]


def test_vllm_omni_is_told_what_has_come():
    async def script(peer: Peer) -> None:
        await peer.expect("session.update")
        await peer.say("session.created", session={})
        await peer.expect("input_audio_buffer.commit")
        await peer.say("response.created", response={"id": "r"}, server_event_seq=3)
        await peer.audio("r", server_event_seq=4)
        await peer.say("response.done", response={"id": "r", "status": "completed"}, server_event_seq=9)
        await peer.drain()

    out = play(spoken(), script, dialect="vllm_omni", model="q")
    [call] = out.calls
    assert call.of("session.event_ack") == [{"type": "session.event_ack", "server_event_seq": 9}]
    assert call.of("playback.ack")[-1]["played_ms"] == 100
    assert call.path == "/v1/realtime?duplex=1&model=q&autostart=0"
    assert out.values("finish", "talker") == []  # it did not say


def test_the_session_s_own_rate_is_used_where_events_have_none():
    async def script(peer: Peer) -> None:
        await peer.expect("session.update")
        session = {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 8_000}}}}
        await peer.say("session.updated", session=session)
        await peer.expect("response.create")
        await peer.say("response.created", response={"id": "r"})
        await peer.audio("r", 0.2, rate=8_000)
        await peer.audio("r", 0.1, rate=16_000, sample_rate_hz=16_000)
        await peer.done("r")
        await peer.drain()

    assert play(spoken(), script, dialect="openai").values("audio") == [0.2, 0.1]


def test_typed_turns():
    out = play(typed(turns=2), openai, dialect="openai")
    [call] = out.calls
    items = call.of("conversation.item.create")
    words = [item["item"]["content"][0]["text"].split() for item in items]
    assert [len(each) for each in words] == [5, 5] and words[0] != words[1]
    assert not call.of("input_audio_buffer.append") and not call.of("input_audio_buffer.commit")
    assert table(out)["status"].tolist() == ["completed", "completed"]


def test_a_server_that_listens_by_itself_hears_silence_between_turns_and_ends_them():
    async def script(peer: Peer) -> None:
        await greet(peer)
        for turn in range(2):
            quiet = 0
            while quiet < 5:  # its VAD: five silent pieces after the speech
                data = await peer.expect("input_audio_buffer.append")
                spoke = len(peer.call.pcm) > 1 and any(peer.call.pcm[-1])
                quiet = 0 if spoke else quiet + (len(peer.call.pcm) > 10)
                assert data
            await peer.say("input_audio_buffer.speech_stopped")
            await reply(peer, f"resp_{turn}")
            for _ in range(5 * (1 - turn)):
                await peer.expect("input_audio_buffer.append")
            while not turn and not any(peer.call.pcm[-1]):
                await peer.expect("input_audio_buffer.append")
        await peer.drain()

    out = play(spoken(turns=2, think_s=[np.nan, 0.3]), script, dialect="rehearsal", turn_detection="server")
    assert out.failures.empty
    assert table(out)["status"].tolist() == ["completed", "completed"]
    [call] = out.calls
    assert not call.of("input_audio_buffer.commit") and not call.of("response.create")
    silent = [not any(pcm) for pcm in call.pcm]
    assert sum(silent) > 10 and not silent[0]
    assert len(call.pcm) - sum(silent) >= 30
    audio = out.sends[out.sends["kind"] == "audio"]["due_s"].to_numpy()
    assert (np.diff(audio) > 0).all()
    assert call.of("session.update")[0]["session"]["audio"]["input"]["turn_detection"]["type"] == "server_vad"


def test_a_reply_to_a_pause_is_forgotten_when_the_user_goes_on():
    async def script(peer: Peer) -> None:
        await greet(peer)
        for _ in range(8):
            await peer.expect("input_audio_buffer.append")
        await peer.say("response.created", response={"id": "early"})
        await peer.audio("early")
        await peer.expect("input_audio_buffer.append")
        await peer.done("early", "cancelled", audio=9)
        for _ in range(20):
            await peer.expect("input_audio_buffer.append")
        await reply(peer, "resp_0")
        await peer.drain()

    out = play(spoken(), script, dialect="openai", turn_detection="server")
    assert out.failures.empty
    assert out.values("audio") == [0.1] * 3  # what was said into the user's speech is no reply
    assert out.values("abort", "talker") == [9] and out.values("finish", "talker") == [40]
    assert table(out)["status"].tolist() == ["completed"]


def test_a_server_s_vad_interrupts_for_the_user():
    async def script(peer: Peer) -> None:
        await greet(peer)
        for _ in range(20):
            await peer.expect("input_audio_buffer.append")
        await peer.say("response.created", response={"id": "resp_0"})
        await peer.audio("resp_0", 3.0)
        await peer.expect("conversation.item.truncate")
        for _ in range(5):
            await peer.expect("input_audio_buffer.append")
        await peer.done("resp_0", "cancelled", audio=60)
        for _ in range(20):
            await peer.expect("input_audio_buffer.append")
        await reply(peer, "resp_1")
        await peer.drain()

    trace = spoken(turns=2, barge_in_after_s=[0.3, np.nan])
    out = play(trace, script, dialect="openai", turn_detection="server")
    assert out.failures.empty and not out.calls[0].of("response.cancel")
    assert table(out)["status"].tolist() == ["barged_in", "completed"]
    assert out.values("abort", "talker") == [60]


async def _silent(peer: Peer) -> None:
    await peer.drain()


def after(*turns: str, then: Any) -> Script:
    """Replies to `turns`, is greeted, and does `then` when the next commit has come."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        for response in turns:
            await peer.expect("response.create")
            await reply(peer, response)
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
    await peer.say(
        "response.done",
        response={"id": "r", "status": "failed", "status_details": {"error": {"code": "gpu"}}},
    )


FAILS = {
    "response failed: gpu": after("a", then=_fail),
    "closed 1006": after("a", then=_vanish),
    "closed 1011": after("a", then=lambda peer: peer.socket.close(1011)),
    "closed 1000": after("a", then=lambda peer: peer.socket.close(1000)),
    "garbage": after("a", then=lambda peer: peer.socket.send("not json")),
    "error: server_error": after(
        "a", then=lambda peer: peer.say("error", error={"type": "server_error", "message": "oh"})
    ),
    "error: invalid_value (audio)": after(
        "a",
        then=lambda peer: peer.say(
            "error", error={"code": "invalid_value", "message": "oh", "param": "audio"}
        ),
    ),
}


@pytest.mark.parametrize("reason", FAILS)
def test_what_fails_in_a_turn_fails_the_turn(reason: str):
    out = play(spoken(turns=3), FAILS[reason], dialect="openai")
    assert out.failures[["session", "turn", "reason"]].to_numpy().tolist() == [[0, 1, reason]]
    assert table(out)["status"].tolist() == ["completed", "failed"]  # and the user hung up
    assert out.kinds()[-2:] == ["turn_failed", "session_end"]
    assert out.times("turn_failed")[0] >= out.failures["t_s"][0]


def test_a_binary_message_is_garbage():
    out = play(spoken(), after(then=lambda peer: peer.socket.send(bytes(range(200, 256)))), dialect="openai")
    assert out.failures["reason"].tolist() == ["garbage"]


def test_a_line_that_goes_while_the_user_speaks_or_thinks():
    async def mid(peer: Peer) -> None:
        await greet(peer)
        for _ in range(5):
            await peer.expect("input_audio_buffer.append")
        peer.socket.transport.abort()

    out = play(spoken(), mid, dialect="openai")
    [row] = table(out).to_dict("records")
    assert row["status"] == "failed" and np.isnan(row["send_lag_s"])
    assert row["turn_end_s"] - row["turn_start_s"] < SPEECH_S
    assert out.sends["kind"].tolist().count("commit") == 0

    async def between(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await reply(peer, "a")
        await asyncio.sleep(0.5)
        peer.socket.transport.abort()

    out = play(spoken(turns=2, think_s=[np.nan, 0.6]), between, dialect="openai")
    assert out.failures[["turn", "reason"]].to_numpy().tolist() == [[1, "closed 1006"]]
    assert table(out)["status"].tolist() == ["completed", "failed"]


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
def test_who_is_not_let_in_is_shed_and_counts(script: Script, refuse: Any, reason: str, lead_s: float):
    trace = spoken(sessions=3, arrival_s=[0.4, 0.45, 0.5])
    out = play(trace, script, refuse=refuse, dialect="openai", connect_lead_s=lead_s)
    assert out.failures["reason"].tolist() == [reason] * 3
    assert sorted(out.failures["session"]) == [0, 1, 2]
    counts = out.events["kind"].value_counts()
    assert [counts[kind] for kind in ("shed", "turn_start", "turn_failed", "session_end")] == [3] * 4
    assert table(out)["status"].tolist() == ["failed"] * 3


@pytest.mark.parametrize("code", [401, 500])
def test_a_handshake_that_fails_is_a_failure_and_no_refusal(code: int):
    out = play(spoken(), _silent, refuse=status(code), dialect="openai")
    assert out.failures["reason"].tolist() == [f"connect: HTTP status {code}"]
    assert "shed" not in set(out.events["kind"])


def test_a_server_that_never_greets_is_given_up():
    out = play(spoken(), _silent, dialect="openai", connect_timeout_s=0.5)
    assert out.failures["reason"].tolist() == ["timeout: no session"]
    assert table(out)["status"].tolist() == ["failed"]


def test_a_reply_that_never_comes_is_a_timeout_of_the_user():
    out = play(
        spoken(turns=2),
        after(then=lambda peer: peer.drain()),
        dialect="openai",
        client={"turn_timeout_s": 0.3},
    )
    assert out.failures.empty
    assert table(out)["status"].tolist() == ["failed"]
    assert out.calls[0].closed == 1000


def test_one_line_s_end_is_nobody_else_s():
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


def test_events_that_nobody_asked_for_are_passed_over():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.say("response.created", response={"id": "unasked"})
        await peer.audio("unasked", 1.0)
        await peer.done("unasked")
        await peer.say("an.event.of.tomorrow", payload=[1, 2])
        await peer.expect("response.create")
        await peer.audio("echo")
        await peer.done("echo", "failed")
        await reply(peer, "r")
        await peer.drain()

    out = play(spoken(), script, dialect="openai")
    assert out.values("audio") == [0.1] * 3 and table(out)["status"].tolist() == ["completed"]


def test_a_server_of_frames_is_not_spoken_to_in_turns():
    async def script(peer: Peer) -> None:
        await peer.expect("session.update")
        await peer.say("session.updated", session={"rehearsal": {"serves": "frames"}})
        await peer.drain()

    assert play(spoken(), script, dialect="rehearsal").failures["reason"].tolist() == ["serves frames"]


def prepare(trace: Any, **target: Any) -> None:
    async def main() -> None:
        endpoint = make_endpoint(
            trace, TargetParams(url="ws://127.0.0.1:9/x", **target), EventLog(), SendLog(), FailureLog()
        )
        await endpoint.prepare()

    clock.run(main(), virtual=False)


def test_what_cannot_be_played_is_said_before_the_run():
    trace = spoken()
    changed = Trace.from_columns(
        {**trace.columns(), "audio_s": 0.5}, generator="speech", notes=trace.header.notes
    )
    with pytest.raises(UserError, match="the trace was changed"):
        prepare(changed, dialect="openai")
    with pytest.raises(UserError, match="dialect vllm: its server takes no typed turns"):
        prepare(typed(), dialect="vllm", model="q")
    with pytest.raises(UserError, match="MISSING"):
        prepare(spoken(), dialect="openai", token_env="MISSING")


def test_a_token_is_sent_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("MINE", "opensesame")
    with caplog.at_level("DEBUG", logger="harness"):
        out = play(spoken(), _full, dialect="openai", token_env="MINE")
    assert out.calls[0].headers["Authorization"] == "Bearer opensesame"
    kept = out.events.to_csv() + out.failures.to_csv() + out.sends.to_csv()
    assert "opensesame" not in kept + caplog.text


def test_hanging_up_before_the_line_stands():
    """A run can end while somebody is still calling: nothing is left over."""

    async def main() -> int:
        trace = spoken()
        target = TargetParams(url="ws://127.0.0.1:9/x", dialect="openai")
        failures = FailureLog()
        endpoint = make_endpoint(trace, target, EventLog(), SendLog(), failures)
        await endpoint.prepare()
        from harness.client.params import ClientParams

        await serve_population(trace, endpoint, EventLog(), ClientParams(turn_timeout_s=0.1))
        await endpoint.aclose()
        return len(failures)

    assert clock.run(main(), virtual=False) == 1


def test_in_a_closed_loop_nobody_comes_before_the_one_before_has_left():
    """Also after a cut, when the line stays for what the server tells of it."""
    on_line, most = 0, 0

    async def slow_to_tell(peer: Peer) -> None:
        nonlocal on_line, most
        on_line += 1
        most = max(most, on_line)
        try:
            await greet(peer)
            await peer.expect("response.create")
            await peer.say("response.created", response={"id": "resp_0", "status": "in_progress"})
            for _ in range(10):
                await peer.audio("resp_0")
            await peer.expect("response.cancel")
            await asyncio.sleep(0.3)
            await peer.done("resp_0", status="cancelled")
            await peer.expect("response.create")
        finally:
            on_line -= 1

    out = play(spoken(sessions=4, barge_in_after_s=0.1), slow_to_tell, {"c": 2}, dialect="openai")
    assert out.failures.empty and len(out.calls) == 4
    assert most == 2
