"""A server behind real sockets, as the clients of `harness.client.session` see it.

It speaks the target's dialect: one connection for each session, the user's audio in real time, and events to the
client at the time at which they were read. What a reply cost is logged from what the server says of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harness.client.params import ClientParams
from harness.live.client.base_endpoint import WebSocketEndpoint
from harness.live.client.connection import GOODBYE_S
from harness.live.client.turn_connection import TELL_S, TurnConnection
from harness.live.dialects import dialect_of
from harness.live.dialects.detect import resolve
from harness.live.dialects.dialect import CLOSE
from workloads.errors import UserError
from workloads.trace import Turn


class TurnEndpoint(WebSocketEndpoint[TurnConnection]):
    """Implements `harness.client.session.Server`. Nothing that a client calls blocks or raises."""

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
        self._encode(dialect, "turns")

    def expect(self, params: ClientParams) -> None:
        """After the clock is set: users who come as scheduled connect `connect_lead_s` before."""
        if params.c is not None:
            return
        for session in self.trace.sessions:
            arrival_s = session.turns[0].arrival_s
            if arrival_s is not None and params.begins(arrival_s):
                at_s = max(self._loop.time(), arrival_s - self.target.connect_lead_s)
                self._loop.call_at(at_s, self._connect, session.id)

    def open(self, session: int, listener: Any) -> None:
        connection = self._connect(session)
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        connection.attach(listener)

    def close(self, session: int) -> None:
        """The user has hung up."""
        connection = self._connections.pop(session)
        connection.leave_when_told()
        self._keep_until_closed(connection)

    async def left(self, session: int) -> None:
        going = [connection.closed_future for connection in self._closing if connection.session == session]
        if going:
            await asyncio.wait(going, timeout=TELL_S + GOODBYE_S)

    def speech_start(self, turn: Turn, begin_s: float) -> None:
        connection = self._connections[turn.session]
        connection.speak(turn, begin_s + connection.listener.network_s, self._speech)

    def commit(self, turn: Turn) -> None:
        self._connections[turn.session].commit(turn, self.trace.header.seed)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False  # they are messages

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        del turn
        connection = self._connections[session]
        if connection.listener.network_s:
            self._loop.call_at(at_s, connection.ack, played_s, playing, connection.due_s)
        else:
            connection.ack(played_s, playing, connection.due_s)
        return 0.0

    def playback_done(self, session: int, turn: int) -> None:
        del turn
        self._connections[session].played_out()

    def barge_in(self, session: int, played_s: float) -> None:
        connection = self._connections[session]
        if connection.interrupt(played_s) == CLOSE:
            connection.hang_up(connection.due_s)
            self._keep_until_closed(connection)
            again = self._connections[session] = TurnConnection(self._context, session)
            again.turn = connection.turn
            again.connect()
            again.attach(connection.listener)

    async def aclose(self) -> None:
        """Hang up whatever is still connected, and wait until the servers know."""
        staying = [connection.closed_future for connection in self._closing]
        if staying:
            await asyncio.wait(staying, timeout=TELL_S + GOODBYE_S)
        await super().aclose()

    def _connect(self, session: int) -> TurnConnection:
        connection = self._connections.get(session)
        if connection is None:
            connection = self._connections[session] = TurnConnection(self._context, session)
            connection.connect()
        return connection
