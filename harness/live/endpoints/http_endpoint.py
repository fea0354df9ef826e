"""The base of endpoints of requests over HTTP: connections of no session, and each session's requests on them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.client.client_params import ClientParams
from harness.live.endpoints.base_endpoint import BaseEndpoint
from harness.live.endpoints.dialects.detect import BUSY, resolve
from harness.live.endpoints.logs import REASON
from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.http import Exchange, HttpPool
from workloads.errors import UserError, printable
from workloads.trace import Session, Turn

_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
OPENED = 64
"""Connections that are open before the run; more are opened as they are needed. [chosen]"""


class Requests:
    """The requests of one session, one after the other, and the receiver of their answers."""

    def __init__(self, endpoint: HttpEndpoint[Any], session: Session) -> None:
        self._endpoint = endpoint
        self._first = session.turns[0].turn
        self._exchange: Exchange | None = None
        self._turn: Turn
        self._facts = Facts()
        self._due_s: float | None = None
        self.listener: Any = None

    def ask(self, turn: Turn, end_s: float, pool: HttpPool) -> None:
        """Send the request of `turn`, the next one. The user was to end the turn at `end_s`."""
        self._turn, self._facts = turn, Facts()
        self._due_s = end_s + self.listener.network_s
        self._exchange = pool.post(self._begin(turn), self)
        self._note_sent()

    def stop(self) -> None:
        """Stop the current answer."""
        if self._exchange is not None:
            self._exchange.abort()
            self._exchange = None

    def cut(self, at_s: float) -> None:
        """Stop the current answer, because its user interrupts it."""
        self.stop()

    def status(self, code: int, at_s: float) -> None:
        self._note_sent()
        self._facts.status = code
        assert self._exchange is not None
        if (part := _PART.fullmatch(self._exchange.headers.get("content-range", ""))) and code == 206:
            begin, end, total = map(int, part.groups())
            if begin or end + 1 < total:
                self._facts.unread = "http 206, a part of the answer"

    def data(self, chunk: bytes, at_s: float) -> None:
        if not self._facts.refused:
            self._read(chunk, at_s)

    def done(self, at_s: float) -> None:
        if self._exchange is None:
            return
        if not self._facts.refused:
            self._read_end(at_s, self._exchange.cut)
        self._settle(at_s)

    def failed(self, reason: str, at_s: float) -> None:
        self._facts.lost = reason
        self._settle(at_s)

    def timed_out(self) -> None:
        """Log what has not come: the user gives up."""
        exchange = self._exchange
        if exchange is not None:
            missing = "connection" if exchange.sent_s is None else "HTTP answer"
            self._facts.lost = f"timeout: no {self._missing() if self._facts.status else missing}"
            self._endpoint.fail(self._turn, outcome(self._facts) or "", self._endpoint._loop.time())

    def _begin(self, turn: Turn) -> bytes:
        """Return the body of the request that is about to go out."""
        raise NotImplementedError

    def _read(self, chunk: bytes, at_s: float) -> None:
        raise NotImplementedError

    def _read_end(self, at_s: float, cut: str) -> None:
        """Note the end of the body; `cut`: why it is not whole, empty where it is."""
        raise NotImplementedError

    def _missing(self) -> str:
        """Return what the answer lacks of a complete reply."""
        raise NotImplementedError

    def _settle(self, at_s: float) -> None:
        """End the reply, if something has ended it."""
        exchange, why = self._exchange, outcome(self._facts)
        if exchange is None or why is None:
            return
        if not why:
            self._end(exchange, at_s)
            return
        self._note_sent()
        self.stop()
        self._endpoint.fail(self._turn, why, at_s)
        if self._facts.status in BUSY and self._turn.turn == self._first:
            self.listener.rejected(at_s)
        else:
            self.listener.failed(why, at_s)

    def _end(self, exchange: Exchange, at_s: float) -> None:
        """End a complete reply."""
        self._exchange = None
        self.listener.reply_done(self._turn.turn, at_s)

    def _note_sent(self) -> None:
        """Log once when the request went out. A request that waited for a connection, or was sent again, shows it only
        by its answer. A repeat was not scheduled, so it is never late."""
        exchange, sends, session = self._exchange, self._endpoint.sends, self._turn.session
        sent_s = None if exchange is None else exchange.sent_s
        if self._due_s is not None and sent_s is not None:
            sends.add("request", session, self._due_s, sent_s)
            self._due_s = None
        if exchange is not None and exchange.repeated_s is not None:
            sends.add("repeat", session, exchange.repeated_s, exchange.repeated_s)
            exchange.repeated_s = None


R = TypeVar("R", bound=Requests)


@dataclass(eq=False)
class HttpEndpoint(BaseEndpoint, Generic[R]):
    """An endpoint over HTTP, for servers that hear and play nothing. Implements `harness.client.session.Server`. Calls
    of a client neither block nor raise."""

    _asking: dict[int, R] = field(init=False, default_factory=dict)
    _ready: dict[int, R] = field(init=False, default_factory=dict)
    _pool: HttpPool = field(init=False)

    async def prepare(self) -> None:
        """Before time 0: open connections and make all first requests. UserError where no server answers."""
        target = self.target = await resolve(self.target)
        self._pool = self._pool_of(target)
        try:
            async with asyncio.timeout(target.connect_timeout_s):
                await self._pool.open(min(OPENED, len(self.trace.sessions)))
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or str(error) or "nothing came back"
            raise UserError(f"url {target.url} does not answer: {why}; start the server, or correct the url.") from None
        for session in self.trace.sessions:
            self._ready[session.id] = self._make(session)

    def expect(self, params: ClientParams) -> None:
        """Do nothing: connections are open already, and belong to no session."""

    def open(self, session: int, listener: Any) -> None:
        asking = self._asking[session] = self._ready.pop(session)
        asking.listener = listener

    def close(self, session: int) -> None:
        self._asking.pop(session).stop()

    def timed_out(self, turn: Turn) -> None:
        self._asking[turn.session].timed_out()

    def speech_start(self, turn: Turn) -> None:
        """Do nothing: a turn is sent as text when it is complete."""

    def commit(self, turn: Turn, end_s: float) -> None:
        self._asking[turn.session].ask(turn, end_s, self._pool)

    def fail(self, turn: Turn, reason: str, at_s: float) -> None:
        """Log the failure."""
        self.failures.add(at_s, turn.session, turn.turn, printable(reason, REASON))

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        """Do nothing: servers take no reports of playback."""
        return 0.0

    def playback_done(self, session: int, turn: int) -> None:
        """Do nothing: servers take no reports of playback."""

    def barge_in(self, session: int, played_s: float) -> None:
        """Close the connection: the rest of the reply is not wanted."""
        self._asking[session].cut(self._loop.time())

    async def aclose(self) -> None:
        await self._pool.aclose()

    def _pool_of(self, target: TargetParams) -> HttpPool:
        raise NotImplementedError

    def _make(self, session: Session) -> R:
        raise NotImplementedError
