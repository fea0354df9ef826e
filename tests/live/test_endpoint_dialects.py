"""Whole calls over real sockets with a server of each dialect."""

import base64
from typing import Any

import pytest

from tests.live.scripted import PIECES, SPEECH_S, Peer, Script, openai, play, reply, spoken, table, tone
from workloads.generators.content import pcm_for


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


async def sglang_omni(peer: Peer) -> None:
    """By sglang_omni 0.1.9, serve/realtime/session.py: its VAD ends turns, names are OpenAI's beta ones."""
    await peer.say("session.created", session={"modalities": ["text"]})
    await peer.expect("session.update")
    await peer.say("session.updated", session={"modalities": ["text", "audio"]})
    for turn in range(2):
        while any(pcm := (await heard(peer))):
            pass
        response = {"response_id": f"r{turn}", "item_id": f"o{turn}"}
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=0, item_id=f"i{turn}")
        await peer.say("input_audio_buffer.speech_stopped", audio_end_ms=330, item_id=f"i{turn}")
        await peer.say("response.created", response={"id": f"r{turn}", "status": "in_progress"})
        await peer.say("response.text.delta", delta="word", **response)
        for _ in range(3):
            await peer.say("response.audio.delta", delta=base64.b64encode(tone(0.1)).decode(), **response)
        await peer.say("response.audio.done", **response)
        await peer.say("response.done", response={"id": f"r{turn}", "status": "completed", "usage": None})
        while not any(pcm) and turn == 0:
            pcm = await heard(peer)
    await peer.drain()


async def heard(peer: Peer) -> bytes:
    """The next piece of sound."""
    return base64.b64decode((await peer.expect("input_audio_buffer.append"))["audio"])


def test_sglang_omni_is_sent_only_audio_and_ends_turns_by_itself():
    out = play(spoken(turns=2), sglang_omni, dialect="sglang_omni")
    assert out.failures.empty
    assert out.kinds().count("end_heard") == 2
    assert [kind for kind in out.kinds() if kind != "end_heard"] == [*WHOLE, "session_end"]
    assert out.values("audio") == [0.1] * 6
    assert table(out)["status"].tolist() == ["completed"] * 2
    [call] = out.calls
    assert set(call.kinds) == {"session.update", "input_audio_buffer.append"}


SERVERS: dict[str, tuple[Script, dict[str, Any]]] = {
    "openai": (openai, {}),
    "rehearsal": (openai, {}),
    "vllm_omni": (vllm_omni, {"model": "q"}),
    "vllm": (vllm, {"model": "q"}),
}
WHOLE = ["session_start", *2 * ["turn_start", "turn_end", "first_text", "reply_done", "playback_done", "turn_done"]]
MUTE = ["session_start", *2 * ["turn_start", "turn_end", "first_text", "reply_done", "turn_done"]]


@pytest.mark.parametrize("name", SERVERS)
def test_a_call_of_two_turns_in_every_dialect(name: str):
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
        sound = b"".join(call.pcm[begin : begin + PIECES])
        assert sound == b"".join(pcm_for(out.trace, turn, rate))[: 2 * round(SPEECH_S * rate)]
        assert [len(pcm) for pcm in call.pcm[begin : begin + PIECES]] == [rate // 25] * 16 + [rate // 50]
    assert len(out.values("connected")) == 1 and out.values("connected")[0] > 0
    done = table(out)
    assert done["status"].tolist() == ["completed"] * 2
    if name == "vllm":
        assert done["generated_entry"].tolist() == [6, 6] and done["generated_talker"].dropna().empty
        return
    assert out.values("audio") == [0.1] * 6
    assert done["audio_s"].tolist() == pytest.approx([0.3, 0.3])
    assert out.values("finish", "entry") == [10, 10] and out.values("finish", "talker") == [40, 40]
    assert done["heard_talker"].tolist() == [40, 40]


def test_vllm_omni_speaks_on_after_its_transcript_is_done():
    async def script(peer: Peer) -> None:
        await vllm(peer, audio=True)

    out = play(spoken(), script, dialect="vllm", model="q")
    assert out.values("audio") == [0.1, 0.1]  # at the event's own rate
    assert out.kinds()[-4:] == ["reply_done", "playback_done", "turn_done", "session_end"]
    assert out.values("finish", "entry") == [6]
