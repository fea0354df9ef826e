"""The base of users of all kinds of workload: a session, its server, and messages that travel `network_s` each way.

Messages keep their order; without `network_s`, as over real sockets, they are handed over at once.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from math import nan
from typing import Any

from harness.events.log import EventLog
from workloads.trace import Session


class User:
    """The user of one session. Subclasses hear the server in `_hear`. `due_s`: when the user's last act was due, s on
    the loop's clock. In the methods that the server calls, `at_s` is when its message was read; None: now."""

    def __init__(self, session: Session, server: Any, log: EventLog) -> None:
        self.session, self.server, self._log = session, server, log
        self.network_s = session.turns[0].network_s
        self.due_s = nan
        self._loop = asyncio.get_running_loop()

    def failed(self, reason: str, at_s: float | None = None) -> None:
        """Lose the session. The caller keeps the reason."""
        raise NotImplementedError

    def refused(self, reason: str, status: HTTPStatus) -> None:
        """Note that the server refuses the turn under way: the session is lost when the user hears it."""
        self._send(self.turned_away if status == HTTPStatus.TOO_MANY_REQUESTS else self.failed, reason)

    def turned_away(self, reason: str) -> None:
        """Lose the session, as admission rejects the turn under way."""
        self.failed(reason)

    def rejected(self, at_s: float | None = None) -> None:
        """Note that the server rejects the session."""
        self._event("shed", at_s=at_s)
        self.failed("rejected")

    def _hear(self, at_s: float | None, *args: Any) -> None:
        raise NotImplementedError

    def _arrive(self, begin_s: float) -> None:
        self._event("session_start")
        self.due_s = begin_s
        self._send(self.server.open, self.session.id, self)

    async def _leave(self, turn: int) -> None:
        self.due_s = self._loop.time()
        self._event("session_end", turn)
        await self._hang_up()

    async def _hang_up(self) -> None:
        """Say goodbye, which arrives after everything that was said before."""
        await asyncio.sleep(self.network_s)
        self.server.close(self.session.id)

    def _event(self, kind: str, turn: int = 0, value: float = nan, at_s: float | None = None) -> None:
        self._log.event(self._loop.time() if at_s is None else at_s, kind, self.session.id, turn, value=value)

    def _send(self, method: Callable[..., object], *args: Any) -> None:
        if self.network_s:
            self._loop.call_later(self.network_s, method, *args)
        else:
            method(*args)

    def _receive(self, at_s: float | None, *args: Any) -> None:
        if self.network_s:
            self._loop.call_later(self.network_s, self._hear, None, *args)
        else:
            self._hear(at_s, *args)
