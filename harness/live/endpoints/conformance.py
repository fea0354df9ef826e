"""A test of any dialect: scripted calls in virtual time, and damaged messages.

The client is whole, from the trace to the messages; only the network is missing. A server is written as the messages
that it says for each event. Its replies come in packets of any size, its text before, between or after them.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from harness.client.client_params import ClientParams
from harness.clocks import clock
from harness.events.log import EventLog
from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import Event
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.turn_endpoint import TurnEndpoint
from harness.live.kinds import kind_of
from workloads.trace import Trace, Turn

CALLS = 10
"""Calls, each with another order and other packets. [chosen]"""
SPEECH_S, THINK_S, REPLY_S = 0.5, 0.2, 1.0
"""Lengths of a user's speech and thought, and of a reply, s. [chosen]"""
ANSWERED_S, CUT_S = 0.3, 0.1
"""From the end of a turn to its reply, and from an interruption to the cut. [chosen]"""
TONE_HZ = 400
DAMAGED = 300
"""Damaged messages of each kind. [chosen]"""


class Server(Protocol):
    """A server's messages. Each method returns those for one event, none where the protocol has none. `reply`: number
    of the reply in the call; `rate`: samples/s of its audio."""

    rate: int

    def ready(self) -> list[bytes]:
        """Return its messages until a session can begin."""
        ...

    def begin(self, reply: int) -> list[bytes]:
        """A reply begins."""
        ...

    def audio(self, reply: int, pcm: bytes) -> list[bytes]:
        """A packet: 16-bit little-endian mono."""
        ...

    def text(self, reply: int) -> list[bytes]:
        """A word."""
        ...

    def end(self, reply: int) -> list[bytes]:
        """The reply is complete."""
        ...

    def cut(self, reply: int) -> list[bytes]:
        """The reply has been interrupted."""
        ...

    def error(self) -> list[bytes]:
        """The session fails."""
        ...


def check_dialect(target: TargetParams, server: Server) -> None:
    """Check that the dialect of `target` keeps its promises with `server`. AssertionError, which names the first one
    that it breaks."""
    _check_reader(dialect_of(target), server)
    for seed in range(CALLS):
        call = _Call(target, server, random.Random(seed))
        where = f"dialect {target.dialect}, call {seed}"
        call.play()
        assert not len(call.failures), f"{where}: {call.failures.table()['reason'].to_pylist()}"
        for turn, heard_s in enumerate(call.heard_s()):
            kind, sent_s = call.outcomes()[turn], call.sent_s[turn]
            wanted = "barge_in" if turn in _INTERRUPTED else "reply_done"
            assert kind == wanted, f"{where}: turn {turn} should end with {wanted}, not {kind}"
            whole = turn in _INTERRUPTED or math.isclose(heard_s, sent_s, abs_tol=1e-3)
            assert whole, f"{where}: turn {turn} has {heard_s:.3f} s of audio, and {sent_s:.3f} s were sent"
        texts = call.count("first_text") if server.text(0) else len(_TURNS)
        assert texts >= len(_TURNS) - len(_INTERRUPTED), f"{where}: {texts} of {len(_TURNS)} replies have text"
    if server.error():
        call = _Call(target, server, random.Random(0), fails=True)
        call.play()
        reasons = call.failures.table()["reason"].to_pylist()
        assert len(reasons) == 1 and reasons[0].startswith("error"), f"an error of the server is {reasons}"


_TURNS = range(4)
_INTERRUPTED = (1, 3)


def _check_reader(dialect: Dialect, server: Server) -> None:
    """Check that no bytes make a reader raise, and that connections have nothing in common."""
    where = f"dialect {dialect.name}: its reader"
    draw, pcm = random.Random(0), _tone(0.02, server.rate)
    said = [*server.ready(), *server.begin(0), *server.audio(0, pcm), *server.text(0), *server.end(0)]
    for message in [*said, *server.cut(0), *server.error()]:
        read = dialect.reader()
        for _ in range(DAMAGED):
            cut = message[: draw.randrange(len(message) + 1)]
            at = draw.randrange(len(message))
            changed = message[:at] + draw.randbytes(1) + message[at + 1 :]
            for damaged in (cut, changed, draw.randbytes(draw.randrange(40))):
                try:
                    event = read(damaged)
                except Exception as error:
                    raise AssertionError(
                        f"dialect {dialect.name}: its reader raises {error!r} of {damaged!r}"
                    ) from error
                assert isinstance(event, Event), f"dialect {dialect.name}: {event!r} of {damaged!r} is no event"
    first, second = dialect.reader(), dialect.reader()
    assert [first(message) for message in said] == [second(message) for message in said], (
        f"{where} depends on messages of another connection"
    )


@dataclass
class _Call:
    """One user of four turns, who interrupts every second reply. `fails`: the server states an error instead of its
    first reply. `sent_s`: seconds of each reply."""

    target: TargetParams
    server: Server
    draw: random.Random
    fails: bool = False
    sent_s: list[float] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def play(self) -> None:
        self.log, self.failures = EventLog(), FailureLog()
        self.wire: _Wire | None = None
        clock.run(self._play(), virtual=True)

    def heard_s(self) -> list[float]:
        events = self.log.events().to_pandas()
        return [float(events.query("kind == 'audio' and turn == @turn")["value"].sum()) for turn in _TURNS]

    def outcomes(self) -> list[str]:
        events = self.log.events().to_pandas().query("kind in ('barge_in', 'reply_done', 'turn_failed')")
        return [next(iter(events.query("turn == @turn")["kind"]), "nothing") for turn in _TURNS]

    def count(self, kind: str) -> int:
        return self.log.events().column("kind").to_pylist().count(kind)

    async def _play(self) -> None:
        trace, client = _trace(), ClientParams.model_validate({"turn_timeout_s": 20})
        endpoint = _Endpoint(trace, self.target, self.log, SendLog(), self.failures)
        endpoint.call = self
        await endpoint.prepare()
        endpoint.expect(client)
        await kind_of(trace).play(trace, endpoint, self.log, client, 1)
        await endpoint.aclose()

    def say(self, messages: list[bytes]) -> None:
        for message in messages:
            assert self.wire is not None
            self.wire.receiver.message(message, asyncio.get_running_loop().time())

    def reply(self, turn: int) -> None:
        """Say the reply, or the error."""
        if self.fails:
            return self.say(self.server.error())
        pcm, samples, packets = _tone(REPLY_S, self.server.rate), 0, []
        self.sent_s.append(len(pcm) / 2 / self.server.rate)
        while samples < len(pcm) // 2:
            size = self.draw.randint(1, self.server.rate // 5)
            packets.append(self.server.audio(turn, pcm[2 * samples : 2 * (samples + size)]))
            samples += size
        for _ in range(self.draw.randint(1, 3)):
            packets.insert(self.draw.randint(0, len(packets)), self.server.text(turn))
        self.say(self.server.begin(turn))
        for packet in packets:
            self.say(packet)
        if turn not in _INTERRUPTED:
            self.say(self.server.end(turn))


class _Wire:
    """The client's end of a connection without a network."""

    def __init__(self, receiver: Any, sent: list[bytes]) -> None:
        self.receiver, self.send = receiver, sent.append
        self._open = True

    def close(self, code: int = 1000, reason: str = "") -> None:
        if self._open:
            self._open = False
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: self.receiver.closed(code, reason, loop.time()))

    abort = close


class _Endpoint(TurnEndpoint):
    """The endpoint, whose server answers when a turn is over."""

    call: _Call

    async def prepare(self) -> None:
        await super().prepare()
        call, dialect = self.call, self._context.dialect

        async def connect(receiver: Any) -> _Wire:
            call.wire = _Wire(receiver, call.sent)
            asyncio.get_running_loop().call_soon(call.say, call.server.ready())
            return call.wire

        object.__setattr__(dialect, "connect", connect)

    def commit(self, turn: Turn, end_s: float) -> None:
        super().commit(turn, end_s)
        self._loop.call_later(ANSWERED_S, self.call.reply, turn.turn)

    def barge_in(self, session: int, played_s: float) -> None:
        super().barge_in(session, played_s)
        turn = self._connections[session].turn - 1
        self._loop.call_later(CUT_S, self.call.say, self.call.server.cut(turn))


def _tone(seconds: float, rate: int) -> bytes:
    at_s = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * TONE_HZ * at_s)).astype("<i2").tobytes()


def _trace() -> Trace:
    first = [math.nan] * (len(_TURNS) - 1)
    return Trace.from_columns(
        {
            "session": [0] * len(_TURNS),
            "turn": [*_TURNS],
            "arrival_s": [1.0, *first],
            "modality": "audio",
            "input_tokens": 5,
            "audio_s": SPEECH_S,
            "output_tokens": 10,
            "reply_audio_s": REPLY_S,
            "think_s": [math.nan, *(len(first) * [THINK_S])],
            "barge_in_after_s": [THINK_S if turn in _INTERRUPTED else math.nan for turn in _TURNS],
            "network_s": 0.0,
        },
        generator="speech",
        params={"path": None},
    )
