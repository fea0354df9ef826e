"""A listening server that keeps a script to the millisecond, and one user of an open microphone.

The client is whole, from the trace to the messages; only TCP is missing, so that the clock can be the virtual one and
no busy machine is measured. `over_sockets` is the same script behind a real socket.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from websockets.exceptions import ConnectionClosed

from harness.live.endpoints.dialects.dialect import Dialect
from harness.metrics.metric import Metric
from harness.metrics.turn_taking import summarise_turn_taking
from harness.request_tables.turn_taking_table import turn_taking_table
from tests.live import scripted
from tests.live.scripted import OURS, Call, Peer, tone
from tests.waiting import until
from workloads.audio.synth import synthetic_clips
from workloads.audio.utterances import Utterance
from workloads.generators.content import note
from workloads.generators.duplex import DuplexParams
from workloads.trace import Trace

SPEECH_S = 1.0
THINK_S = 0.5
ARRIVAL_S = 0.05
RATE = 24_000
PACKET_S = 0.02


def open_call(*turns: Mapping[str, float | str]) -> Trace:
    """One call; of each turn its pause and event, `SPEECH_S` of speech, and a reply of 3 s."""
    nan, n = float("nan"), len(turns)
    columns: dict[str, Any] = {
        name: [turn.get(name, nan) for turn in turns]
        for name in ("pause_after_s", "pause_s", "event_after_s", "event_s")
    }
    return Trace.from_columns(
        {
            **columns,
            "event": [turn.get("event", "") for turn in turns],
            "session": [0] * n,
            "turn": list(range(n)),
            "arrival_s": [ARRIVAL_S] + [nan] * (n - 1),
            "modality": "audio",
            "input_tokens": 13,
            "audio_s": [SPEECH_S + float(turn.get("pause_s", 0.0)) for turn in turns],
            "output_tokens": 10,
            "reply_audio_s": 3.0,
            "think_s": [nan] + [THINK_S] * (n - 1),
            "network_s": 0.0,
        },
        generator="duplex",
        params=DuplexParams.model_validate({"sessions": 1}).model_dump(mode="json"),
        notes=[note(Utterance(synthetic_clips()[0], 0.0, SPEECH_S))],
    )


class Agent:
    """The server's end: what it says when. Times are the loop's, s; of a reply's packets each comes when it is due to
    be played, unless it is sent `at_once`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._loop = asyncio.get_running_loop()
        self._hearing = asyncio.create_task(self._hear())

    async def greet(self) -> None:
        await self.peer.say("session.created", session=OURS)
        await self.peer.say("session.updated", session=OURS)

    async def at(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._loop.time()))

    async def silent_s(self, times: int) -> float:
        """Hear until the user has fallen silent `times` times, and return when."""
        call = self.peer.call
        await until(lambda: len(call.of("rehearsal.silence")) >= times)
        events = zip(call.received, call.at_s, strict=True)
        return [at_s for event, at_s in events if event["type"] == "rehearsal.silence"][times - 1]

    async def tell(self, kind: str, at_s: float) -> None:
        await self.at(at_s)
        await self.peer.say(f"input_audio_buffer.{kind}", item_id="item")

    async def reply(
        self, id: str, begin_s: float, sound_s: float, quiet_s: float = 0.0, at_once: bool = False
    ) -> float:
        """From `begin_s` on, with `quiet_s` of silence before the sound; returns when the sound has been sent."""
        await self.at(begin_s)
        await self.peer.say("response.created", response={"id": id})
        packets = round((quiet_s + sound_s) / PACKET_S)
        for k in range(packets):
            if not at_once:
                await self.at(begin_s + k * PACKET_S)
            loud = k * PACKET_S >= quiet_s - 1e-9
            pcm = tone(PACKET_S) if loud else bytes(2 * round(PACKET_S * RATE))
            await self.peer.audio(id, PACKET_S, delta=base64.b64encode(pcm).decode())
        return begin_s + quiet_s + sound_s

    async def over(self) -> None:
        """Hear until the user hangs up."""
        await self._hearing

    async def _hear(self) -> None:
        with suppress(ConnectionError, ConnectionClosed):
            await self.peer.drain()


Script = Callable[[Agent], Awaitable[None]]


@dataclass
class Heard:
    """What was logged and measured of the call."""

    events: pd.DataFrame
    sends: pd.DataFrame
    failures: pd.DataFrame
    call: Call
    trace: Trace
    turns: list[dict[str, Any]] = field(init=False)
    """The rows of the table of turns."""
    metrics: dict[str, Metric] = field(init=False)

    def __post_init__(self) -> None:
        table = turn_taking_table(self.events, pd.DataFrame(self.trace.columns()))
        self.turns = [dict(row) for row in table.to_dict("records")]
        self.metrics = summarise_turn_taking(table)

    @classmethod
    def of(cls, outcome: scripted.Outcome) -> Heard:
        (call,) = outcome.calls
        return cls(outcome.events, outcome.sends, outcome.failures, call, outcome.trace)

    def stretches(self, kind: str) -> list[tuple[str, float, float]]:
        """Label, begin and end of each, s."""
        mine = self.events.loc[self.events["kind"] == kind]
        rows = zip(*(mine[name].tolist() for name in ("stage", "t", "value")), strict=True)
        return [(label, t - length_s, t) for label, t, length_s in rows]


class _Wire:
    """Both ends of a connection without a network: what one sends the other has read at once."""

    def __init__(self, receiver: Any) -> None:
        self._receiver, self._loop = receiver, asyncio.get_running_loop()
        self._to_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = False

    def send_to_server(self, message: bytes) -> None:
        self._to_server.put_nowait(message)

    def close(self, code: int = 1000, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self._to_server.put_nowait(None)
            self._loop.call_soon(self._receiver.closed, code, reason, self._loop.time())

    abort = close

    async def send(self, message: str) -> None:
        self._receiver.message(message.encode(), self._loop.time())

    async def recv(self) -> bytes:
        message = await self._to_server.get()
        if message is None:
            raise ConnectionError
        return message


class _Client:
    """The client's end, as `harness.live.endpoints.transport.websocket.WebSocket`."""

    def __init__(self, wire: _Wire) -> None:
        self.send, self.close, self.abort = wire.send_to_server, wire.close, wire.abort


def play(
    monkeypatch: Any, trace: Trace, script: Script, save: Path | None = None, agents: type[Agent] = Agent, **target: Any
) -> Heard:
    """On the virtual clock."""
    call, tasks = Call("/", {}), []

    async def connect(dialect: Dialect, receiver: Any) -> _Client:
        wire = _Wire(receiver)

        async def answer() -> None:
            agent = agents(Peer(wire, call))  # type: ignore[arg-type]
            await agent.greet()
            await script(agent)
            await agent.over()

        tasks.append(asyncio.create_task(answer()))
        return _Client(wire)

    async def serving(use: scripted.Use) -> list[Call]:
        await use("ws://127.0.0.1:9/v1/realtime")
        return [call]

    monkeypatch.setattr(Dialect, "connect", connect)
    target = {"dialect": "rehearsal", **target}
    return Heard.of(scripted.played(trace, serving, virtual=True, save=save, **target))


def over_sockets(trace: Trace, script: Script, **target: Any) -> Heard:
    """On the wall clock."""

    async def agents(peer: Peer) -> None:
        agent = Agent(peer)
        await agent.greet()
        await script(agent)
        await agent.over()

    return Heard.of(scripted.play(trace, agents, **{"dialect": "rehearsal", **target}))
