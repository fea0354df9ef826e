"""The messages of a user over a real socket: their order, their pieces and their due times."""

import asyncio
import json

from harness.live.endpoints.logs import SendLog
from tests.live.scripted import PIECES, Peer, openai, play, reply, spoken


def test_the_commit_follows_the_last_audio_and_playback_is_reported():
    out = play(spoken(), openai, dialect="rehearsal", client={"ack_s": 0.04})
    [call] = out.calls
    kinds = [event["type"] for event in call.received]
    commit = kinds.index("input_audio_buffer.commit")
    assert kinds[commit - 1] == "input_audio_buffer.append" and kinds[commit + 1] == "response.create"
    assert "input_audio_buffer.append" not in kinds[commit:]
    *before, last = call.of("rehearsal.playback")
    played = [report["played_ms"] for report in (*before, last)]
    assert len(before) > 3 and played == sorted(played) and not any(report["done"] for report in before)
    over = {"type": "rehearsal.playback", "response_id": "resp_0", "played_ms": 300, "playing": False, "done": True}
    assert last == over
    hint = json.loads(call.of("response.create")[0]["response"]["metadata"]["rehearsal"])
    assert hint["output_tokens"] == 7 and hint["reply_audio_s"] == 0.3
    [update] = call.of("session.update")
    format = {"type": "audio/pcm", "rate": 16_000}
    assert update["session"]["audio"]["input"] == {"format": format, "turn_detection": None}


def test_audio_is_sent_in_pieces_of_the_chosen_length():
    out = play(spoken(), openai, dialect="rehearsal", chunk_ms=100)
    assert [len(pcm) // 32 for pcm in out.calls[0].pcm] == [100, 100, 100, 30]


def test_audio_that_was_due_before_the_session_was_ready_is_sent_when_it_is():
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
    assert set(audio["due_s"]) == {ready_s}  # late from then on, not from before
    assert out.sends[out.sends["kind"] == "commit"]["due_s"].tolist() == [ready_s]


def test_the_log_of_sends_keeps_their_delays_and_gives_the_newest():
    log = SendLog()
    log.add("audio", 3, 1.0, 1.25)
    log.add("commit", 3, 2.0, 2.0)
    assert log.recent().tolist() == [0.25, 0.0]
    log.add("goodbye", 4, -1.0, 0.5)
    assert log.recent().tolist() == [1.5]
    assert log.table(2).to_pylist() == [{"kind": "goodbye", "session": 4, "due_s": -1.0, "send_delay_s": 1.5}]
    assert (log.table().num_rows, SendLog().table().num_rows) == (3, 0)
