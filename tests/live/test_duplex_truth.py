"""The truth test: a server that cuts in, stops late, ignores and resumes by known amounts is measured exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from harness.live.endpoints.call_recorder import CallRecorder
from tests.live.open_microphone import ARRIVAL_S, SPEECH_S, Agent, Heard, Script, open_call, over_sockets, play, tone

EXACT_S = 0.02
PAUSE: dict[str, float | str] = {"pause_after_s": 0.4, "pause_s": 0.8}
INTERRUPTED: dict[str, float | str] = {"event": "interruption", "event_after_s": 0.6, "event_s": SPEECH_S}
MURMURED: dict[str, float | str] = {"event": "backchannel", "event_after_s": 0.5, "event_s": 0.4}
CALL: tuple[dict[str, float | str], ...] = ({**PAUSE}, INTERRUPTED, MURMURED, MURMURED, INTERRUPTED, {})


async def agent(agent: Agent) -> None:
    """Cuts in at a pause; stops 0.35 s late; stops at a murmur and goes on 1 s later; ignores one; talks on."""
    # Turn 0: a reply of 0.3 s cuts in 0.2 s after the begin of the pause.
    await agent.reply("early", await agent.silent_s(1) + 0.2, 0.3)
    await agent.peer.done("early", "cancelled")
    end_s = await agent.silent_s(2)
    await agent.tell("speech_stopped", end_s + 0.25)
    await agent.tell("committed", end_s + 0.25)
    await agent.reply("r0", end_s + 0.45, 1.0, quiet_s=0.2)  # sounds 0.65 s after the end
    await agent.peer.done("r0")
    # Turn 1: interrupted 0.6 s after the first sound, falls silent 0.35 s later.
    end_s = await agent.silent_s(3)
    await agent.tell("committed", end_s + 0.3)
    await agent.reply("r1", end_s + 0.5, 0.6 + 0.35)
    await agent.peer.done("r1", "cancelled")
    # Turn 2, the words of the interruption: answered 0.7 s later; a murmur at 0.5 s, at which it stops for a second.
    end_s = await agent.silent_s(4)
    await agent.tell("committed", end_s + 0.6)
    said_s = await agent.reply("r2", end_s + 0.7, 0.5 + 0.2)
    await agent.peer.done("r2", "cancelled")
    await agent.reply("r3", said_s + 1.0, 0.8)
    await agent.peer.done("r3")
    # Turn 3: the same murmur is ignored.
    end_s = await agent.silent_s(6)
    await agent.tell("committed", end_s + 0.3)
    await agent.reply("r4", end_s + 0.4, 2.0)
    await agent.peer.done("r4")
    # Turn 4: interrupted 0.6 s after its first sound, and says all of its 3 s.
    end_s = await agent.silent_s(8)
    await agent.tell("committed", end_s + 0.3)
    said_s = await agent.reply("r5", end_s + 0.4, 3.0)
    await agent.peer.done("r5")
    # Turn 5, the words of the ignored interruption: answered 0.9 s after r5 has ended.
    await agent.tell("committed", said_s + 0.1)
    await agent.reply("r6", said_s + 0.9, 1.0)
    await agent.peer.done("r6")


def rates(heard: Heard) -> dict[str, tuple[float | None, int]]:
    names = ("takeover", "cut_in", "false_interruption", "interruption_recall", "interruption_misses", "resumption")
    return {name: (heard.metrics[name].value, heard.metrics[name].n) for name in names}


COUNTS = {
    "takeover": (1.0, 1),
    "cut_in": (0.0, 5),
    "false_interruption": (0.5, 2),
    "interruption_recall": (0.5, 2),
    "interruption_misses": (1.0, 2),
    "resumption": (1.0, 1),
}


def test_the_delays_and_mistakes_of_a_server_are_measured_within_20_ms(monkeypatch: Any) -> None:
    heard = play(monkeypatch, open_call(*CALL), agent)
    assert heard.failures.empty
    turns = heard.turns
    assert [turn["said"] for turn in turns] == ["turn", "turn", "interruption", "turn", "turn", "interruption"]
    delays = [turn["end_of_turn_delay_s"] for turn in turns]
    assert delays[:5] == pytest.approx([0.65, 0.5, 0.7, 0.4, 0.4], abs=EXACT_S)
    assert turns[1]["stop_s"] == pytest.approx(0.35, abs=EXACT_S)
    assert turns[1]["stop_server_s"] == pytest.approx(0.35, abs=EXACT_S)
    # The cut-in ends before the user goes on; the reply stops 0.35 s late; r5 ignores all of the interruption.
    talk_over_s = [turns[k]["talk_over_s"] for k in (0, 2, 5)]
    assert talk_over_s == pytest.approx([0.0, 0.35, SPEECH_S], abs=EXACT_S)
    parts = ("endpointing_s", "server_s", "playout_s")
    assert [turns[0][part] for part in parts] == pytest.approx([0.25, 0.2, 0.2], abs=EXACT_S)
    answered = [turn for turn in turns if not np.isnan(turn["server_s"])]
    assert len(answered) >= 5
    for turn in answered:
        assert sum(turn[part] for part in parts) == pytest.approx(turn["end_of_turn_delay_s"], abs=1e-3)
    assert rates(heard) == COUNTS


@pytest.mark.slow("calls in real time")
def test_the_same_counts_over_real_sockets() -> None:
    heard = over_sockets(open_call(*CALL), agent)
    assert heard.failures.empty and rates(heard) == COUNTS


END_S = ARRIVAL_S + SPEECH_S
WORDS_S = END_S + 0.5 + 0.6
"""The reply comes 0.5 s after the user's speech, and the user interrupts it 0.6 s later."""


async def stops_at_speech_started(agent: Agent) -> None:
    """OpenAI's protocol: the client stops at `speech_started`, here 0.15 s after the user's speech begins."""
    await agent.peer.done("r0")
    await agent.tell("speech_started", WORDS_S + 0.15)


async def clears_the_reply(agent: Agent) -> None:
    """Our protocol: `cleared` comes at once, and the end of the reply only with the engine's step."""
    await agent.tell("speech_started", WORDS_S + 0.12)  # which may be no turn
    await agent.at(WORDS_S + 0.2)
    await agent.peer.say("output_audio_buffer.cleared", response_id="r0")
    await agent.at(WORDS_S + 0.4)
    await agent.peer.done("r0", "cancelled")


@pytest.mark.parametrize(
    ("dialect", "ends", "stop_s"), [("openai", stops_at_speech_started, 0.15), ("rehearsal", clears_the_reply, 0.2)]
)
def test_a_server_that_sends_ahead_falls_silent_when_the_client_drops_its_audio(
    monkeypatch: Any, dialect: str, ends: Script, stop_s: float
) -> None:
    async def script(agent: Agent) -> None:
        await agent.tell("committed", END_S + 0.3)
        await agent.reply("r0", END_S + 0.5, 3.0, at_once=True)
        await ends(agent)
        await agent.tell("committed", WORDS_S + SPEECH_S + 0.3)
        await agent.reply("r1", WORDS_S + SPEECH_S + 0.4, 0.5)
        await agent.peer.done("r1")

    heard = play(monkeypatch, open_call(INTERRUPTED, {}), script, dialect=dialect)
    assert heard.failures.empty
    assert heard.turns[0]["stop_s"] == pytest.approx(stop_s, abs=EXACT_S)
    assert heard.turns[0]["stop_server_s"] == 0.0  # all of it was there before
    assert heard.turns[1]["end_of_turn_delay_s"] == pytest.approx(0.4, abs=EXACT_S)
    assert heard.metrics["interruption_recall"].value == 1.0
    if dialect == "openai":
        [truncated] = heard.call.of("conversation.item.truncate")
        assert truncated["audio_end_ms"] == pytest.approx(750, abs=1e3 * EXACT_S)


def test_a_recorded_call_has_both_sides_at_the_times_of_the_log(monkeypatch: Any, tmp_path: Path) -> None:
    heard = play(monkeypatch, open_call(*CALL), agent, save=tmp_path, save_audio=1)
    [path] = tmp_path.iterdir()
    samples, rate = soundfile.read(path, dtype="int16")
    assert path.name == "call-0.flac" and rate == 24_000 and samples.shape[1] == 2
    silent_s = max(end_s for _, _, end_s in heard.stretches("agent_speech"))
    assert len(samples) / rate == pytest.approx(silent_s - ARRIVAL_S, abs=0.1)
    for kind, side in (("user_speech", 0), ("agent_speech", 1)):
        loud = np.abs(samples[:, side]) > 50
        for _, begin_s, end_s in heard.stretches(kind):
            begin, end = (round((at_s - ARRIVAL_S) * rate) for at_s in (begin_s, end_s))
            around = slice(max(0, begin - rate // 10), end + rate // 10)
            here = np.flatnonzero(loud[around]) + around.start
            first_s, last_s = (here[0] - begin) / rate, (here[-1] + 1 - end) / rate
            assert abs(first_s) < EXACT_S, (kind, begin_s)
            assert last_s < EXACT_S
            assert last_s > -EXACT_S or kind == "user_speech"  # words fade before their end
            loud[here] = False
        assert not loud.any(), kind  # nothing else is heard


def test_a_recorded_call_ends_at_its_longest_length() -> None:
    tape = CallRecorder(10.0, 16_000, longest_s=1.0)
    for k in range(100):
        tape.heard(10.0 + 0.02 * k, tone(0.02)[:640])
    tape.play(0, 10.5, 3.0, tone(3.0))
    tape.stop(0, 10.75)
    stereo = tape.samples()
    assert stereo.shape == (24_000, 2)  # 1 s of 2 s
    right = np.flatnonzero(stereo[:, 1])
    assert right[[0, -1]] == pytest.approx([12_000, 18_000], abs=2)  # from 0.5 to 0.75 s
