"""A server behind real sockets, as the clients of `harness.client.session` see it.

It speaks the target's dialect: one connection for each session, the user's audio in real time, and events to the
client at the time at which they were read. What a reply cost is logged from what the server says of it.
"""

import asyncio

from harness.endpoints.base_endpoint import LEAVE_S, CallEndpoint
from harness.endpoints.dialects import for_turns
from harness.endpoints.dialects.detect import resolve
from harness.endpoints.dialects.dialect import CLOSE
from harness.endpoints.turn_connection import TurnConnection
from workloads.trace import Turn


class TurnEndpoint(CallEndpoint[TurnConnection]):
    """An endpoint of turns. Implements `harness.client.session.Server`. Calls of a client neither block nor raise."""

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode everything that will be said. UserError where the target
        cannot be reached or cannot do what the trace needs."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        self._encode(for_turns(self.target, self.trace), "turns")

    def _make(self, session: int) -> TurnConnection:
        return TurnConnection(self._context, session)

    def _hang_up(self, connection: TurnConnection) -> None:
        connection.leave_when_told()

    def speech_start(self, turn: Turn) -> None:
        connection = self._connections[turn.session]
        connection.speak(turn, connection.due_s, self._speech)

    def commit(self, turn: Turn, end_s: float) -> None:
        connection = self._connections[turn.session]
        connection.commit(turn, end_s + connection.listener.network_s, self.trace.header.seed)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False  # they are messages

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        connection = self._connections[session]
        return self._report(connection, at_s, connection.ack, played_s, playing)

    def playback_done(self, session: int, turn: int) -> None:
        self._connections[session].played_out()

    def barge_in(self, session: int, played_s: float) -> None:
        connection = self._connections[session]
        if connection.interrupt(played_s) == CLOSE:
            connection.hang_up(connection.due_s)
            self._keep_until_closed(connection)
            again = self._connections[session] = self._make(session)
            again.turn = connection.turn
            again.connect()
            again.attach(connection.listener)

    async def aclose(self) -> None:
        """Hang up every connection, and wait until the servers know."""
        staying = [connection.closed_future for connection in self._closing]
        if staying:
            await asyncio.wait(staying, timeout=LEAVE_S)
        await super().aclose()
