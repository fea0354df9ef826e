"""Servers with their own turn detection, over real sockets: they hear silence, end turns and cut replies."""

import asyncio

import numpy as np
import pytest

from harness.metrics.live import summarise_live
from harness.request_tables.wait_parts import with_parts
from harness.slo.targets import turn_values
from tests.live.scripted import Peer, greet, play, reply, spoken, table


async def answers_after_silence(peer: Peer) -> None:
    """Its VAD ends a turn at five silent pieces after the speech."""
    await greet(peer)
    for turn in range(2):
        quiet = 0
        while quiet < 5:
            await peer.expect("input_audio_buffer.append")
            spoke = len(peer.call.pcm) > 1 and any(peer.call.pcm[-1])
            quiet = 0 if spoke else quiet + (len(peer.call.pcm) > 10)
        await peer.say("input_audio_buffer.speech_stopped")
        await reply(peer, f"resp_{turn}")
        await peer.pieces(5 * (1 - turn))
        while not turn and not any(peer.call.pcm[-1]):
            await peer.expect("input_audio_buffer.append")
    await peer.drain()


def test_a_server_with_its_own_vad_hears_silence_between_turns_and_ends_them():
    trace = spoken(turns=2, think_s=[np.nan, 0.3])
    out = play(trace, answers_after_silence, dialect="rehearsal", turn_detection="server")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed", "completed"]
    [call] = out.calls
    assert not call.of("input_audio_buffer.commit") and not call.of("response.create")
    assert call.of("session.update")[0]["session"]["audio"]["input"]["turn_detection"]["type"] == "server_vad"
    silent = [not any(pcm) for pcm in call.pcm]
    assert sum(silent) > 10 and not silent[0] and silent.count(False) >= 30
    audio = out.sends.loc[out.sends["kind"] == "audio", "due_s"].to_numpy()
    speech = np.isclose(audio, out.times("turn_start")[1] + 0.02).argmax()
    for due in (audio[:speech], audio[speech:]):  # a late user may send silence that is due after the speech begins
        assert (np.diff(due[due > out.times("connected")[0]]) > 0).all()


def test_a_reply_into_the_users_speech_is_no_reply_to_the_turn():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.pieces(8)
        await peer.say("response.created", response={"id": "early"})
        await peer.audio("early")
        await peer.expect("input_audio_buffer.append")
        await peer.done("early", "cancelled", audio=9)
        await peer.pieces(20)
        await reply(peer, "resp_0")
        await peer.drain()

    out = play(spoken(), script, dialect="openai", turn_detection="server")
    assert out.failures.empty
    assert out.values("audio") == [0.1] * 3  # what was said into the user's speech is no reply
    assert out.values("abort", "talker") == [9] and out.values("finish", "talker") == [40]
    assert table(out)["status"].tolist() == ["completed"]


def test_a_reply_that_begins_in_a_pause_and_goes_on_has_no_ttfp():
    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.pieces(8)
        await peer.say("response.created", response={"id": "early"})
        await peer.audio("early", 0.1)
        await peer.pieces(20)
        await peer.audio("early", 0.2)
        await peer.done("early", "completed", audio=9)
        await peer.drain()

    out = play(spoken(), script, dialect="rehearsal", turn_detection="server")
    assert out.failures.empty
    rows = table(out)
    assert rows["status"].tolist() == ["completed"] and rows["audio_ttfp_s"].dropna().empty
    assert out.events.loc[out.events["kind"] == "early_reply", "value"].tolist() == [0.1]
    metrics = summarise_live(out.events, rows, out.sends, out.failures, {}, late_s=1.0)
    assert metrics["early_replies"].value == metrics["talked_over"].value == 1
    values = turn_values("audio_ttfp_p90", rows)
    assert values is not None and values.size == 0  # left out, and not late


async def ends_a_turn_late(peer: Peer) -> None:
    await greet(peer)
    await peer.pieces(5)
    await peer.say("input_audio_buffer.speech_stopped")  # took a pause for the end
    await peer.pieces(20)
    await asyncio.sleep(0.2)
    await peer.say("input_audio_buffer.speech_stopped")
    await asyncio.sleep(0.1)
    await reply(peer, "resp_0")
    await peer.drain()


@pytest.mark.parametrize("detector", ["server", "client"])
def test_the_ttfp_is_divided_where_the_server_reports_the_end_of_the_turn(detector: str):
    out = play(spoken(), ends_a_turn_late, dialect="openai", turn_detection=detector)
    rows = with_parts(table(out), out.events)
    metrics = summarise_live(out.events, rows, out.sends, out.failures, {}, late_s=1.0)
    if detector == "client":  # which ends the turn itself
        assert metrics["answer_p50"].value is None and "answer_s" not in rows
    else:
        parts = rows[["end_of_turn_s", "answer_s"]].sum(axis=1)
        assert parts.tolist() == pytest.approx(rows["audio_ttfp_s"].tolist())
        answer_s = metrics["answer_p50"].value
        assert answer_s is not None and 0.1 <= answer_s < rows["audio_ttfp_s"][0]
        assert metrics["end_of_turn_p50"].value == rows["end_of_turn_s"][0] > 0.2
