"""A server behind real sockets, as the clients of `harness.client.session` see it.

It speaks the target's dialect: one connection for each session, the user's audio in real time, and events to the
client at the time at which they were read. What a reply cost is logged from what the server says of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harness.client.params import ClientParams
from harness.live.dialects import dialect_of
from harness.live.dialects.detect import resolve
from harness.live.dialects.dialect import CLOSE
from harness.live.client.failure_log import FailureLog
from harness.live.client.frame_endpoint import FrameEndpoint
from harness.live.client.connection import GOODBYE_S, Wire
from harness.live.client.microphone import Sounds
from harness.live.client.send_log import SendLog
from harness.live.target import TargetParams
from harness.live.client.text_endpoint import TextEndpoint
from harness.live.client.turn_connection import TELL_S, TurnLine
from harness.log import EventLog
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace, Turn


def make_endpoint(
    trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
) -> Endpoint | FrameEndpoint | TextEndpoint:
    """The endpoint that `trace` needs at `target`. Make and `prepare` it on the loop that it is to run on."""
    if target.is_text:
        return TextEndpoint(trace, target, log, sends, failures)
    if serves(trace) == "frames":
        return FrameEndpoint(trace, target, log, sends, failures)
    return Endpoint(trace, target, log, sends, failures)


class Endpoint:
    """Implements `harness.client.session.Server`. Nothing that a client calls blocks or raises."""

    def __init__(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> None:
        self.trace, self.target = trace, target
        self.log, self.sends, self.failures = log, sends, failures
        self._lines: dict[int, TurnLine] = {}
        self._leaving: set[TurnLine] = set()
        self._wire: Wire
        self._sounds: Sounds
        self._loop = asyncio.get_running_loop()

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode all that is going to be said.

        UserError where the target cannot be reached or cannot do what the trace wants.
        """
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        dialect = dialect_of(self.target)
        turns = [turn for session in self.trace.sessions for turn in session.turns]
        why = dialect.cannot(typed=any(not turn.audio_s for turn in turns))
        if why is not None:
            raise UserError(f"dialect {dialect.name}: {why}.")
        self._wire = Wire.of(dialect, "turns", self.log, self.sends, self.failures)
        self._sounds = Sounds(self.trace, dialect, self.target.chunk_ms / 1e3)
        self._sounds.encode()

    def expect(self, params: ClientParams) -> None:
        """After the clock is set: users who come as scheduled connect `connect_lead_s` before."""
        if params.c is not None:
            return
        for session in self.trace.sessions:
            arrival_s = session.turns[0].arrival_s
            if arrival_s is not None and params.begins(arrival_s):
                at_s = max(self._loop.time(), arrival_s - self.target.connect_lead_s)
                self._loop.call_at(at_s, self._call, session.id)

    def open(self, session: int, listener: Any) -> None:
        line = self._call(session)
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        line.answer(listener)

    def close(self, session: int) -> None:
        """The user has hung up."""
        line = self._lines.pop(session)
        line.leave_when_told()
        self._keep(line)

    async def left(self, session: int) -> None:
        going = [line.gone for line in self._leaving if line.session == session]
        if going:
            await asyncio.wait(going, timeout=TELL_S + GOODBYE_S)

    def speech_start(self, turn: Turn, begin_s: float) -> None:
        line = self._lines[turn.session]
        line.speak(turn, begin_s + line.listener.network_s, self._sounds)

    def commit(self, turn: Turn) -> None:
        self._lines[turn.session].commit(turn, self.trace.header.seed)

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> None:
        del turn
        line = self._lines[session]
        if line.listener.network_s:
            self._loop.call_at(at_s, line.ack, played_s, playing, line.due_s)
        else:
            line.ack(played_s, playing, line.due_s)

    def playback_done(self, session: int, turn: int) -> None:
        del turn
        self._lines[session].played_out()

    def barge_in(self, session: int, heard_s: float) -> None:
        line = self._lines[session]
        if line.interrupt(heard_s) == CLOSE:
            line.goodbye(line.due_s)
            self._keep(line)
            again = self._lines[session] = TurnLine(self._wire, session)
            again.turn = line.turn
            again.connect()
            again.answer(line.listener)

    async def aclose(self) -> None:
        """Hang up whatever is still connected, and wait until the servers know."""
        staying = [line.gone for line in self._leaving]
        if staying:
            await asyncio.wait(staying, timeout=TELL_S + GOODBYE_S)
        lines = [*self._lines.values(), *self._leaving]
        self._lines.clear()
        await asyncio.gather(*(line.leave() for line in lines))

    def _call(self, session: int) -> TurnLine:
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = TurnLine(self._wire, session)
            line.connect()
        return line

    def _keep(self, line: TurnLine) -> None:
        """Until its socket is closed."""
        self._leaving.add(line)
        line.gone.add_done_callback(lambda _: self._leaving.discard(line))
