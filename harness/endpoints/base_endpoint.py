"""The base of the endpoints of a live run: their logs, and the connections of WebSocket endpoints."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.client.client_params import ClientParams
from harness.endpoints.connection import GOODBYE_S, Connection, ConnectionContext
from harness.endpoints.dialects.dialect import Dialect
from harness.endpoints.logs import FailureLog, SendLog
from harness.endpoints.microphone import SpeechMessages
from harness.endpoints.target import TargetParams
from harness.events.log import EventLog
from workloads.trace import Trace

TELL_S = 2.0
"""A session whose last reply was cut stays connected so long for what the server tells of it. [chosen]"""
LEAVE_S = TELL_S + GOODBYE_S

C = TypeVar("C", bound=Connection)


@dataclass(eq=False)
class BaseEndpoint:
    """The target of a run and its three logs. Must be made on the loop that it runs on."""

    trace: Trace
    target: TargetParams
    log: EventLog
    sends: SendLog
    failures: FailureLog
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)


@dataclass(eq=False)
class WebSocketEndpoint(BaseEndpoint, Generic[C]):
    """An endpoint with one connection for each session, by the session's number, and the closing connections."""

    _connections: dict[int, C] = field(init=False, default_factory=dict)
    _closing: set[C] = field(init=False, default_factory=set)
    _context: ConnectionContext = field(init=False)
    _speech: SpeechMessages = field(init=False)

    async def aclose(self) -> None:
        """Hang up every connection, and wait until the servers know."""
        connections = [*self._connections.values(), *self._closing]
        self._connections.clear()
        await asyncio.gather(*(connection.leave() for connection in connections))

    def _encode(self, dialect: Dialect, serves: str) -> None:
        """Encode everything that will be said, in `dialect`; `serves`: turns or frames."""
        self._context = ConnectionContext(dialect, serves, self.log, self.sends, self.failures)
        self._speech = SpeechMessages(self.trace, dialect, self.target.chunk_ms / 1e3)
        self._speech.encode()

    def close(self, session: int) -> None:
        """Hang up, as the user has."""
        connection = self._connections.pop(session)
        self._hang_up(connection)
        self._keep_until_closed(connection)

    def _hang_up(self, connection: C) -> None:
        connection.hang_up(connection.due_s)

    def _keep_until_closed(self, connection: C) -> None:
        self._closing.add(connection)
        connection.closed_future.add_done_callback(lambda _: self._closing.discard(connection))


class CallEndpoint(WebSocketEndpoint[C]):
    """The endpoint of callers who connect before they speak, and hang up. `_make` makes a session's connection."""

    def _make(self, session: int) -> C:
        raise NotImplementedError

    def expect(self, params: ClientParams) -> None:
        """Plan connections, once the clock is set: users who come as scheduled connect `connect_lead_s` before."""
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

    def _report(self, connection: C, at_s: float, ack: Callable[..., None], *facts: Any) -> float:
        """Send a report of playback that arrives at `at_s`. Return how long the player may stand still before the
        next."""
        if connection.listener.network_s:
            self._loop.call_at(at_s, ack, *facts, connection.due_s)
        else:
            ack(*facts, connection.due_s)
        return 0.0

    async def left(self, session: int) -> None:
        """Return when the server knows that the user has hung up."""
        going = [connection.closed_future for connection in self._closing if connection.session == session]
        if going:
            await asyncio.wait(going, timeout=LEAVE_S)

    def _connect(self, session: int) -> C:
        connection = self._connections.get(session)
        if connection is None:
            connection = self._connections[session] = self._make(session)
            connection.connect()
        return connection
