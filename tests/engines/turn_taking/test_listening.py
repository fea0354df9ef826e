"""Calls that a gateway receives of an open microphone, and their times. Speech is detected 0.12 s late."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engines.turn_taking.listening import LEAST_REPLY_S, Listening
from engines.turn_taking.turn_taking_params import TurnTakingParams
from engines.turns.monitor import Ack, Monitor, Phase
from harness.clocks.clock import run
from tests.harness.test_duplex_user import TURN
from workloads.trace import Turn

DELAY_S = 0.12


class Gateway:
    """Notes its calls; each reply has been heard for `heard` seconds."""

    def __init__(self, heard: float) -> None:
        self.said: list[tuple] = []
        self.ends: list[float] = []
        self.heard = heard
        self.loop = asyncio.get_running_loop()

    def note(self, *what: Any) -> None:
        self.said.append((pytest.approx(self.loop.time()), *what))

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Note three of the other calls, and take the rest."""
        return lambda *_: self.note(name) if name in ("close", "speech_start", "speech_ignored") else None

    def heard_s(self, session: int) -> float:
        return self.heard

    def commit(self, turn: Turn, end_s: float) -> None:
        self.ends.append(end_s)
        self.note("commit", turn.turn, *(pytest.approx(s) for s in (turn.audio_s, turn.reply_audio_s)))

    def barge_in(self, session: int, played_s: float) -> None:
        self.note("barge_in", played_s)


class Listener:
    def __init__(self, gateway: Gateway) -> None:
        self.reply_begun = lambda reply: gateway.note("begun", reply)
        self.stopped = lambda reply: gateway.note("stopped", reply)
        self.turn_event = lambda kind: None


def gateway_of(*says: tuple, heard: float = 1.0, seed: int = 0, until_s: float = 30.0, **params: Any) -> Gateway:
    """The gateway at the end; `says`: (at, turn, kind), or (at, number of a reply that has been heard out)."""

    async def main() -> Gateway:
        gateway: Any = Gateway(heard)
        listening = Listening(gateway, TurnTakingParams(**params), seed)
        listening.open(0, Listener(gateway))
        for at_s, *what in says:
            if len(what) == 2:
                gateway.loop.call_at(at_s, listening.says, *what, at_s)
            else:
                gateway.loop.call_at(at_s, listening.playback_done, 0, *what)
        await asyncio.sleep(until_s)
        listening.close(0)
        return gateway

    return run(main(), virtual=True)


def hear(*says: tuple, **more: Any) -> list[tuple]:
    """Return the calls of the gateway, in order."""
    return gateway_of(*says, **more).said


@pytest.mark.parametrize("timeout_s", [0.2, 0.5, 1.0])
def test_a_turn_is_committed_when_the_silence_has_lasted_and_ended_when_its_user_fell_silent(timeout_s: float):
    """Its user fell silent the network's time before its sound ended here."""
    gateway = gateway_of((1.0, TURN.changed(network_s=0.25), "turn"), silence_duration_ms=1000 * timeout_s)
    assert gateway.ends == pytest.approx([1.0 + 2.0 - 0.25])
    assert gateway.said[:3] == [
        (1.0 + DELAY_S, "speech_start"),
        (3.0 + timeout_s, "commit", 0, 2.0, 3.0),
        (3.0 + timeout_s, "begun", 0),
    ]


PAUSED = TURN.changed(pause_after_s=0.5, pause_s=0.8)


MURMUR = TURN.changed(event="backchannel", event_after_s=1.0, event_s=0.4)


def test_behind_a_gate_a_backchannel_is_a_false_start():
    said = hear((1.0, TURN, "turn"), (5.0, MURMUR, "backchannel"), min_duration_s=0.5)[3:]
    assert said == [(5.12, "speech_start"), (5.9, "speech_ignored"), (30.0, "close")]
    assert hear((1.0, TURN, "turn"), (5.0, MURMUR, "backchannel"), min_words=2)[3:] == said


def test_without_interrupt_response_the_reply_ends_with_the_next_turn():
    said = hear((1.0, TURN, "turn"), (5.0, TURN.changed(turn=1), "turn"), interrupt_response=False)[3:]
    assert [each[:2] for each in said[:3]] == [(5.12, "speech_start"), (7.5, "barge_in"), (7.5, "stopped")]


def test_a_reply_that_was_heard_out_cannot_be_cut():
    said = hear((1.0, TURN, "turn"), (4.5, 0), (5.0, MURMUR, "backchannel"), min_duration_s=0.5)[3:]
    assert said[:2] == [(5.12, "speech_start"), (5.9, "commit", 1, 0.4, LEAST_REPLY_S)]


def test_speech_shorter_than_the_delay_or_missed_is_not_heard():
    assert hear((5.0, MURMUR.changed(event_s=0.1), "backchannel")) == [(30.0, "close")]
    assert hear((1.0, TURN, "turn"), vad_misses=1.0) == [(30.0, "close")]


@pytest.mark.parametrize(("kind", "rate"), [("noise", "noise_heard"), ("background_speech", "background_heard")])
@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.3, 40, 80), (1.0, 200, 200)])
def test_noise_and_background_speech_are_heard_at_their_rates(
    kind: str, rate: str, share: float, least: int, most: int
):
    sound = TURN.changed(event=kind, event_after_s=1.0, event_s=0.4)
    said = hear(*((2.0 * i, sound, kind) for i in range(1, 201)), until_s=500, **{rate: share})
    assert least <= sum(each[1] == "speech_start" for each in said) <= most


def test_a_semantic_detector_ends_turns_at_once_and_errs_by_its_seed():
    def commits(seed: int) -> list[float]:
        says = [(10.0 * i, PAUSED.changed(turn=i), "turn") for i in range(1, 101)]
        said = hear(*says, seed=seed, until_s=1100, turn_detection="semantic", eagerness="low")
        return [round(each[0].expected % 10, 3) for each in said if each[1] == "commit"]

    found = commits(0)
    early, at_once = (sum(t == 0.76 for t in found), sum(t == 2.26 for t in found))  # 0.26 s after a silence begins
    assert 2 <= early <= 20 and 84 <= at_once <= 99, "9.4 % of hesitations, 92.6 % of ends"
    assert commits(0) == found != commits(1)


def test_a_false_start_leaves_the_listener_where_it_was():
    monitor = Monitor(0.3)
    monitor.speech_start(1, 0.0)
    monitor.turn_committed(1, 0, 2.0)
    monitor.audio_sent(1, 0, 10.0, 3.0)
    monitor.speech_start(1, 5.0)
    assert monitor.view(1, 5.0).phase is Phase.USER_SPEAKING
    monitor.playback_ack(1, Ack(6.0, 0, 3.0, True))
    monitor.speech_ignored(1, 7.0)
    view = monitor.view(1, 7.0)
    assert view.phase is Phase.PLAYING and view.played(7.0) == 4.0 and monitor.stale_acks == 0
    monitor.speech_start(1, 12.0)
    monitor.playback_done(1, 0, 13.0)
    monitor.speech_ignored(1, 13.5)
    assert view.phase is Phase.IDLE and view.playback_end_s == 13.0
    monitor.speech_start(1, 14.0)
    monitor.turn_committed(1, 1, 15.0)
    assert view.phase is Phase.AWAIT_FIRST_AUDIO and view.spoken_over is None
