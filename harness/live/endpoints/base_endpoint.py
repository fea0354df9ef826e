"""The base of the endpoints of a live run: their logs, and the connections of WebSocket endpoints."""

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.live.endpoints.dialects.detect import BUSY, FULL, OVERLOADED
from harness.live.endpoints.dialects.dialect import UNDO, Dialect
from harness.live.endpoints.dialects.events import (
    Event,
    Failure,
    Garbage,
    Greeted,
    Leaves,
    Mark,
    Ready,
    Several,
    ToolCall,
    UnreadAudio,
)
from harness.live.endpoints.logs import REASON, FailureLog, SendLog
from harness.live.endpoints.microphone import SpeechMessages
from harness.live.endpoints.outcome import NORMAL
from harness.live.endpoints.playout import Playout
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.limits import Violation
from harness.live.endpoints.transport.websocket import ABNORMAL, ConnectFailed, WebSocket
from workloads.errors import printable
from workloads.seeds import child_seed
from workloads.trace import Trace, Turn

UNCONFIRMED_S = 1.0
"""A session whose server has greeted and does not confirm the client's settings begins so long after the greeting.
[chosen] Servers that confirm do it at once, and speech that is said meanwhile is late only in part."""
GOODBYE_S = 1.0
"""A server that has not answered a goodbye by then is left without one. [chosen]"""
_TOO_LATE = re.compile(
    r"response_cancel_not_active|no active response|already[ _]has[ _](an[ _])?active[ _]response", re.IGNORECASE
)
"""The reply had ended when its interruption came, or had not when the next one was asked for: what comes next tells
whether that is answered. [config: OpenAI Realtime API]"""
_SERVERS_OWN = re.compile(r"server|internal|rate_limit|quota|timeout|overload|unavailable|auth", re.IGNORECASE)
"""Codes of errors that are not about what the client said. [chosen]"""


@dataclass(eq=False)
class ConnectionContext:
    """The shared context of the connections of one endpoint. UserError when the environment lacks the token that the
    target names."""

    dialect: Dialect
    serves: str
    """turns or frames: what the trace needs."""
    log: EventLog
    sends: SendLog
    failures: FailureLog
    seed: int
    """Seed of the run's users."""

    def __post_init__(self) -> None:
        dialect = self.dialect
        dialect.headers()  # without the token, the run ends before it begins
        self.hello = tuple(dialect.opening())
        self.connect_timeout_s = dialect.target.connect_timeout_s


class Connection:
    """A session's connection to the server. Subclasses handle events; `turn`: number of the turn that would fail now.

    Nothing here raises into a client: the loss of a connection is logged, and the client gets it once.
    """

    def __init__(self, context: ConnectionContext, session: int) -> None:
        self.context = context
        self.session = session
        self.listener: Any = None
        self.turn = 0
        self.ready = False
        self.over = False
        """Lost, or said goodbye."""
        self._loop = asyncio.get_running_loop()
        self.closed_future: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is gone."""
        self._lost: tuple[str, float, bool] | None = None
        self._socket: WebSocket | None = None
        self._early: list[tuple[bytes, float]] = []
        self._acts: list[Callable[[float], None]] = []
        self._begun_s = math.nan
        self.finished = False
        """The server has closed the connection normally, with nothing under way."""
        self.leaves = False
        """The server has said that it will close the connection."""
        self._limit: asyncio.TimerHandle | None = None
        self._unconfirmed: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._classify = context.dialect.reader()
        self._write = context.dialect.writer()
        quiet_s = context.dialect.quiet_s
        self._playout = None if quiet_s is None else Playout(quiet_s, self.on_event, self._played)
        self._undone = 0
        """Interruptions that we sent. The server may still object to each one without naming it."""

    @property
    def seed(self) -> int:
        """Seed of the call's network. Implements `harness.live.endpoints.transport.websocket.Receiver`."""
        return child_seed(self.context.seed, f"network {self.session} from turn {self.turn}")

    @property
    def due_s(self) -> float:
        """Time at which the client's last act was due here, s."""
        return self.listener.due_s + self.listener.network_s

    def connect(self) -> None:
        """Call the server, once."""
        if self._connecting is None:
            self._begun_s = self._loop.time()
            self._limit = self._loop.call_later(self.context.connect_timeout_s, self._time_out)
            self._connecting = self._loop.create_task(self._connect(), name=f"connect {self.session}")

    def attach(self, listener: Any) -> None:
        """Attach the client. Events from before it came are passed on now."""
        self.listener = listener
        if self._lost is not None:
            self._tell(*self._lost)

    def when_ready(self, act: Callable[[float], None]) -> None:
        """Call `act` now, or when the session is ready, after earlier calls. It gets that time."""
        if self.ready:
            act(-math.inf)
        elif not self.over:
            self._acts.append(act)

    def say(self, kind: str, messages: list[bytes], due_s: float) -> None:
        """Send a message, and log its delay. Nothing is sent once the connection is gone."""
        if messages and not self.over:
            self._undone += len(messages) if kind == UNDO else 0
            for message in messages:
                self.send(message)
            self.context.sends.add(kind, self.session, due_s, self._loop.time())

    def send(self, message: bytes) -> None:
        if self._socket is not None:
            self._socket.send(message if self._write is None else self._write(message))

    def fail(self, reason: str, at_s: float | None, refused: bool = False) -> None:
        """End a session that cannot go on; `refused`: the server rejects it."""
        if self.over:
            return
        at_s, reason = self._loop.time() if at_s is None else at_s, printable(reason, REASON)
        self.context.failures.add(at_s, self.session, self.failing, reason)
        self._lost = reason, at_s, refused
        self._end()
        if self._socket is not None:
            self._socket.close()
        if self.listener is not None:
            self._tell(*self._lost)

    def timed_out(self, turn: Turn) -> None:
        """Log the event that has not come: the user gives up."""
        if not self.over:
            missing = f"timeout: no {self.missing() if self.ready else self.context.dialect.ready_on}"
            self.context.failures.add(self._loop.time(), self.session, turn.turn, missing)

    def hang_up(self, due_s: float) -> None:
        """End the session; the socket closes by itself."""
        if self.over:
            return
        for message in self.context.dialect.goodbye():
            self.send(message)
        self._end()
        if self._socket is not None:
            self._socket.close()
            self.context.sends.add("goodbye", self.session, due_s, self._loop.time())

    async def leave(self) -> None:
        """Hang up and wait until the server knows, or the wait is too long."""
        self.hang_up(self._loop.time())
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.closed_future
        except TimeoutError:
            if self._socket is not None:
                self._socket.abort()

    def message(self, data: bytes, at_s: float) -> None:
        """Read a message. Implements `harness.live.endpoints.transport.websocket.Receiver`."""
        if self.over:
            return
        if self._socket is None:  # the hello came with the answer to the handshake
            self._early.append((data, at_s))
            return
        event = self._classify(data)
        try:
            for each in event.events if isinstance(event, Several) else (event,):
                if type(each) in _COMMON:
                    self._common(each, at_s)
                elif self._playout is None or self._playout.takes(each, at_s):
                    self.on_event(each, at_s)
        except Violation as error:
            self.fail(str(error), at_s)

    def closed(self, code: int, reason: str, at_s: float) -> None:
        """Note the end. Implements `harness.live.endpoints.transport.websocket.Receiver`."""
        if code in NORMAL and not self.over and self.is_idle():
            self.finished = True
            self._end()
        why = reason if code == ABNORMAL and reason else f"closed {code}"
        self.fail(why, at_s, refused=code == OVERLOADED and not self.ready)
        self._set_closed()

    def on_event(self, event: Event, at_s: float) -> None:
        """Handle an event of the server."""
        raise NotImplementedError

    def missing(self) -> str:
        """Return the event that is waited for."""
        raise NotImplementedError

    def is_idle(self) -> bool:
        """Return whether the server may end the connection: it has answered all that it was asked, at least once."""
        return False

    @property
    def failing(self) -> int:
        """Number of the turn that would fail now."""
        return self.turn

    def on_ready(self, at_s: float) -> None:
        """Begin the session."""

    def on_end(self) -> None:
        """Say no more: the connection is lost or hung up."""

    async def _connect(self) -> None:
        context = self.context
        try:
            socket = await context.dialect.connect(self)
        except ConnectFailed as failed:
            self.fail(f"connect: {failed.reason}", None, refused=failed.status in BUSY)
            return
        self._socket = socket
        if self.over:  # closed before it was open
            socket.abort()
            return
        for message in context.hello:
            self.send(message)
        if not context.dialect.ready_on:
            self._begin(Ready(), self._loop.time())
        early, self._early = self._early, []
        for data, at_s in early:
            self.message(data, at_s)

    def _common(self, event: Any, at_s: float) -> None:
        if isinstance(event, Failure):
            if self._undoes(event):
                return
            self.fail(event.reason, at_s, refused=not self.ready and bool(FULL.search(event.code)))
        elif isinstance(event, Garbage):
            self.fail(event.reason, at_s)
        elif isinstance(event, Greeted):
            if not (self.ready or self.over or self.context.dialect.confirms):
                self._unconfirmed = self._loop.call_later(UNCONFIRMED_S, self._begin_unconfirmed)
        elif isinstance(event, UnreadAudio):
            self.fail(str(event.format.unread), at_s)
        elif isinstance(event, ToolCall):
            for message in self.context.dialect.answer(event):
                self.send(message)
        elif isinstance(event, Leaves):
            self.leaves = True
        elif not self.ready and not self.over:
            self._begin(event, at_s)

    def _played(self, mark: Mark, due_s: float) -> None:
        self.say("ack", self.context.dialect.answer(mark), due_s)

    def _time_out(self) -> None:
        """Give up a session that has not begun."""
        missing = "connection" if self._socket is None else self.context.dialect.ready_on
        self.fail(f"timeout: no {missing}", None)

    def _begin_unconfirmed(self) -> None:
        """Begin a session whose server has not confirmed the client's settings in time."""
        if not self.ready and not self.over:
            now = self._loop.time()
            self.context.log.event(now, "unconfirmed", self.session, 0, value=UNCONFIRMED_S)
            self._begin(Ready(), now)

    def _undoes(self, error: Failure) -> bool:
        """Return whether an error is about an interruption, which may come too late and then changes nothing. Servers
        need not say which message an error is about."""
        if error.caused_by is None and self._undone and not _SERVERS_OWN.search(error.code):
            self._undone -= 1
            return True
        text = f"{error.code} {error.message}"
        return (error.caused_by or "").startswith(UNDO) or _TOO_LATE.search(text) is not None

    def _begin(self, event: Ready, at_s: float) -> None:
        if event.serves not in (None, self.context.serves):
            self.fail(f"serves {event.serves}", at_s)
            return
        if self._limit is not None:
            self._limit.cancel()
        self.ready = True
        self.context.log.event(at_s, "connected", self.session, 0, value=at_s - self._begun_s)
        self.on_ready(at_s)
        acts, self._acts = self._acts, []
        for act in acts:
            act(at_s)

    def _end(self) -> None:
        self.over, self.ready = True, False
        for kind, value in getattr(self._socket, "statistics", dict)().items():
            self.context.log.event(self._loop.time(), kind, self.session, self.turn, value=value)
        for timer in (self._limit, self._unconfirmed):
            if timer is not None:
                timer.cancel()
        if self._socket is None:
            if self._connecting is not None and self._connecting is not asyncio.current_task():
                self._connecting.cancel()
            self._set_closed()
        self._acts.clear()
        if self._playout is not None:
            self._playout.close()
        self.on_end()

    def _set_closed(self) -> None:
        if not self.closed_future.done():
            self.closed_future.set_result(None)

    def _tell(self, reason: str, at_s: float, refused: bool) -> None:
        if refused:
            self.listener.rejected(at_s)
        else:
            self.listener.failed(reason, at_s)


_COMMON = frozenset({Ready, Greeted, Failure, Garbage, UnreadAudio, ToolCall, Leaves})


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

    def _speak_in(self, dialect: Dialect, serves: str) -> None:
        """Connect in `dialect` from now on; `serves`: turns or frames."""
        logs = self.log, self.sends, self.failures
        self._context = ConnectionContext(dialect, serves, *logs, self.trace.header.seed)

    def _encode(self, dialect: Dialect, serves: str) -> None:
        """Encode everything that will be said, in `dialect`; `serves`: turns or frames."""
        self._speak_in(dialect, serves)
        self._speech = SpeechMessages(self.trace, dialect, self.target.chunk_ms / 1e3)
        self._speech.encode()

    def close(self, session: int) -> None:
        """Hang up, as the user has."""
        connection = self._connections.pop(session)
        self._hang_up(connection)
        self._keep_until_closed(connection)

    def timed_out(self, turn: Turn) -> None:
        """Log why `turn` has no whole reply: its user gives up."""
        self._connections[turn.session].timed_out(turn)

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
        if params.c is not None or params.most is not None:
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
