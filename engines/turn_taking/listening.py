"""An open microphone in front of a gateway of turns, in virtual time: the reports of a voice activity detector.

Nothing is recorded or detected: the edges of speech are known, and found late, missed or imagined at stated rates. The
rest is as in a server that hears: a detector of turns decides, and calls the gateway as a client that ends its own
turns would. After a cut that was no turn, the rest of the reply goes on.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from engines.deployments import Deployment
from engines.turn_taking.detector import TurnDetector
from engines.turn_taking.endpointing import (
    ACCURACY,
    TIMEOUTS_S,
    Endpointing,
    InterruptionGate,
    SilenceTimeout,
    SimulatedSemantic,
)
from engines.turn_taking.turn_taking_params import TurnTakingParams
from workloads.trace import Turn

TURN = "turn"
LEAST_REPLY_S = 1.0
"""[chosen] Shortest answer, s, to a sound that is no turn, if nothing remains of the reply that it cut."""


class Listener(Protocol):
    """A user's client, which speaks and hears; the gateway calls it as any listener of a session."""

    def reply_begun(self, reply: int) -> None: ...

    def stopped(self, reply: int) -> None: ...

    def turn_event(self, kind: str) -> None: ...


class TurnGateway(Protocol):
    """A gateway that serves turns (`engines.turns.gateway.Gateway`)."""

    @property
    def deployment(self) -> Deployment: ...

    def open(self, session: int, listener: Any) -> None: ...

    def close(self, session: int) -> None: ...

    def speech_start(self, turn: Turn) -> None: ...

    def speech_ignored(self, session: int) -> None: ...

    def heard_s(self, session: int) -> float: ...

    def commit(self, turn: Turn, end_s: float) -> None: ...

    def barge_in(self, session: int, played_s: float) -> object: ...

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float: ...

    def playback_done(self, session: int, turn: int) -> None: ...

    def counters(self) -> Mapping[str, int]: ...

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]: ...


class Listening:
    """Serves the users of `harness.client.duplex_user`. It counts replies 0, 1, ... in each session, and so do the
    gateway's turns. `seed`: of the errors, whose draws are each session's own."""

    def __init__(self, gateway: TurnGateway, params: TurnTakingParams, seed: int) -> None:
        self.gateway, self.params = gateway, params
        self.counted: Counter[str] = Counter(speech_starts=0, false_starts=0, commits=0, cuts=0)
        self._seed = seed
        self._calls: dict[int, _Call] = {}

    @property
    def deployment(self) -> Deployment:
        return self.gateway.deployment

    def counters(self) -> Mapping[str, int]:
        """Return the gateway's counters, and the number of times that speech was found, ignored, answered, and cut a
        reply."""
        return {**self.gateway.counters(), **self.counted}

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        return self.gateway.tasks()

    def open(self, session: int, listener: Any) -> None:
        self.gateway.open(session, listener)
        self._calls[session] = _Call(self, session, listener, f"{self._seed} turn taking {session}")

    def close(self, session: int) -> None:
        self._calls.pop(session).hang_up()
        self.gateway.close(session)

    def says(self, turn: Turn, kind: str, begin_s: float) -> None:
        """Take in the speech of `turn`, or the sound of its event, which begins now."""
        del begin_s  # when it began at the user
        self._calls[turn.session].hears(turn, kind)

    def playback_ack(self, session: int, reply: int, played_s: float, playing: bool, at_s: float) -> float:
        return self.gateway.playback_ack(session, reply, played_s, playing, at_s)

    def playback_done(self, session: int, reply: int) -> None:
        self._calls[session].heard_out(reply)
        self.gateway.playback_done(session, reply)


class _Call:
    """One session's microphone, and the reply under way."""

    def __init__(self, listening: Listening, session: int, listener: Listener, seed: str) -> None:
        self.session = session
        self._listening, self._gateway, self._listener = listening, listening.gateway, listener
        self._loop = asyncio.get_running_loop()
        self._errors = Random(f"{seed} heard")
        self._detector = detector(listening.params, Random(f"{seed} understood"))
        self._timers: set[asyncio.TimerHandle] = set()
        self._asks: asyncio.TimerHandle | None = None
        self._turn: Turn | None = None  # whose sound was heard last
        self._is_turn = False  # the present speech contains part of a turn
        self._from_s = self._to_s = 0.0
        self._reply, self._replying = -1, False
        self._size = 0, 0.0  # of that reply, in text tokens and s
        self._left_s = 0.0  # of the reply before, which was cut

    def hears(self, turn: Turn, kind: str) -> None:
        """Take in sound of the user's side, which begins now."""
        now, params = self._loop.time(), self._listening.params
        parts = turn.stretches if kind == TURN else [(0.0, turn.microphone.event_s or 0.0)]
        chances = {"noise": params.noise_heard, "background_speech": params.background_heard}
        for begin_s, end_s in parts:
            detected = self._errors.random() < chances.get(kind, 1 - params.vad_misses)
            if detected and end_s - begin_s > params.vad_delay_s:
                self._at(now + begin_s + params.vad_delay_s, self._speech, turn, kind, now + begin_s)
                self._at(now + end_s, self._silence, now + end_s, end_s == parts[-1][1])

    def heard_out(self, reply: int) -> None:
        if reply == self._reply:
            self._replying = False

    def hang_up(self) -> None:
        for timer in (*self._timers, self._asks):
            if timer is not None:
                timer.cancel()

    def _at(self, at_s: float, method: Any, *args: Any) -> None:
        def ring() -> None:
            self._timers.discard(timer)
            method(*args)

        timer = self._loop.call_at(at_s, ring)
        self._timers.add(timer)

    def _speech(self, turn: Turn, kind: str, begun_s: float) -> None:
        if not self._detector.in_turn:
            self._from_s, self._is_turn = begun_s, False
        self._turn = turn
        self._is_turn = self._is_turn or kind == TURN
        self._detector.speech(begun_s, self._replying)
        self._ask()

    def _silence(self, at_s: float, ends_turn: bool) -> None:
        self._to_s = at_s
        self._detector.ends_turn = ends_turn
        self._detector.silence(at_s, self._replying)
        self._ask()

    def _ask(self) -> None:
        """Carry out the detector's decisions, and ask it again at its next time."""
        act = {"started": self._started, "interrupt": self._cut, "ended": self._ended, "ignored": self._ignored}
        while (decision := self._detector.due(self._loop.time(), self._replying)) is not None:
            act[decision]()
        if self._asks is not None:
            self._asks.cancel()
        next_s = self._detector.next_s()
        self._asks = None if next_s is None else self._loop.call_at(next_s, self._ask)

    def _started(self) -> None:
        assert self._turn is not None
        self._count("speech_starts")
        self._gateway.speech_start(self._turn)
        self._listener.turn_event("speech_started")

    def _ignored(self) -> None:
        self._count("false_starts")
        self._gateway.speech_ignored(self.session)
        self._listener.turn_event("speech_stopped")

    def _cut(self) -> None:
        """Cut the reply: the user has the floor."""
        self._count("cuts")
        played_s = self._gateway.heard_s(self.session)
        self._gateway.barge_in(self.session, played_s)
        self._replying, self._left_s = False, max(0.0, self._size[1] - played_s)
        self._listener.stopped(self._reply)

    def _ended(self) -> None:
        """Answer the user's speech; the earlier reply does not go on."""
        if self._replying:
            self._cut()
        self._count("commits")
        self._listener.turn_event("speech_stopped")
        turn = self._turn
        assert turn is not None and turn.reply_audio_s is not None
        size = turn.output_tokens, turn.reply_audio_s
        if not self._is_turn:
            left_s = max(self._left_s, LEAST_REPLY_S)
            size = max(1, math.ceil(size[0] * left_s / size[1])), left_s
        self._reply += 1
        self._replying, self._size, self._left_s = True, size, 0.0
        committed = replace(
            turn, turn=self._reply, audio_s=self._to_s - self._from_s, output_tokens=size[0], reply_audio_s=size[1]
        )
        self._gateway.commit(committed, self._to_s - turn.network_s)
        self._listener.turn_event("committed")
        self._listener.reply_begun(self._reply)

    def _count(self, what: str) -> None:
        self._listening.counted[what] += 1


def detector(params: TurnTakingParams, random: Random) -> TurnDetector:
    """Return one session's detector. `random`: of the errors of a simulated one."""
    endpointing: Endpointing = SilenceTimeout(params.silence_duration_ms / 1000)
    if params.turn_detection == "semantic":
        endpointing = SimulatedSemantic(random, TIMEOUTS_S[params.eagerness], ACCURACY[params.accuracy])
    gate = InterruptionGate(params.min_duration_s, params.min_words)
    return TurnDetector(endpointing, gate if params.interrupt_response else None)
