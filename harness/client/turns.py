"""Users who take turns with a server: in an open loop each comes when scheduled; in a closed loop they share slots."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np

from harness.client.client_params import ClientParams
from harness.client.job import Job, together
from harness.client.session import Client, Leaving, Server
from harness.clocks.clock import VirtualClockLoop
from harness.events.log import EventLog
from workloads.trace import Session, Trace

AHEAD_S = 0.005
"""[chosen] time before its arrival at which a user is made on the wall clock, where that takes time: longer than it
takes, and short compared with a session."""


class User(Protocol):
    """The player of one session."""

    async def run(self, begin_s: float) -> None: ...


async def serve_turns(
    trace: Trace,
    server: Any,
    log: EventLog,
    params: ClientParams,
    replicas: int = 1,
    user_of: Callable[..., User] = Client,
) -> None:
    """Play every session of `trace` and return when the last one has ended. The sessions of a job have one user.

    In a closed loop, slots are acquired in the order of requests for them: by sessions in the order of their scheduled
    arrivals, or by each turn of a session anew. `replicas`: factor on the c slots when `params.c_scope` is replica.
    Sessions of a backlog take no slot. `user_of` makes a session's user.
    """
    loop: Any = asyncio.get_running_loop()
    leaving = isinstance(server, Leaving)  # a protocol's check takes longer than a user's arrival
    slots = None
    if params.c is not None:
        slots = asyncio.Semaphore(params.c * (replicas if params.c_scope == "replica" else 1))
    of_session, of_turn = (slots, None) if params.c_counts == "session" else (None, slots)
    ahead_s = 0.0 if of_session or isinstance(loop, VirtualClockLoop) else AHEAD_S

    async def user(sessions: Sequence[Session], arrival_s: float) -> None:
        async with of_session or nullcontext():
            begin_s = loop.time() if of_session else arrival_s
            if params.begins(begin_s):
                if len(sessions) > 1:
                    one: User = Job(sessions, server, log, params, of_turn)
                else:
                    one = user_of(sessions[0], server, log, params, of_turn)
                if ahead_s:
                    await _arrival(loop, begin_s)
                await one.run(begin_s)
                if leaving:  # or the server would refuse the next user
                    for session in sessions:
                        await server.left(session.id)

    begun_s, ends = loop.time(), has_users(trace)
    backlogs = [
        Backlog(size, sessions, server, log, params, ends)
        for (_, size), sessions in by_backlog(trace).items()
    ]
    async with asyncio.TaskGroup() as background:
        for backlog in backlogs:
            background.create_task(backlog.run())
        async with asyncio.TaskGroup() as users:
            for sessions in together(trace.each_session()):
                session = sessions[0]
                arrival_s = session.turns[0].arrival_s
                if session.turns[0].request.backlog is not None:
                    continue
                assert arrival_s is not None
                if not params.begins(arrival_s):
                    continue
                if arrival_s - ahead_s > begun_s:
                    await _arrival(loop, arrival_s - ahead_s)
                users.create_task(user(sessions, arrival_s), name=f"session {session.id}")
        for backlog in backlogs if ends else ():
            backlog.end()


def has_users(trace: Trace) -> bool:
    """Return whether some session is of no backlog: a user waits for it."""
    return bool(np.isnan(trace.columns()["backlog"]).any())


def by_backlog(trace: Trace) -> dict[tuple[str | None, int], list[Session]]:
    """Return the sessions of each backlog, by class and size."""
    backlogs: dict[tuple[str | None, int], list[Session]] = {}
    if np.isnan(trace.columns()["backlog"]).all():
        return backlogs
    for session in trace.each_session():
        first = session.turns[0]
        if first.request.backlog is not None:
            backlogs.setdefault((first.request.request_class, first.request.backlog), []).append(session)
    return backlogs


async def _arrival(loop: Any, at_s: float) -> None:
    """Return at `at_s`, before anything else that is due then: arrivals do not depend on the server."""
    due = loop.create_future()
    timer = loop.call_first_at(at_s, due.set_result, None)
    try:
        await due
    finally:
        timer.cancel()


class Backlog:
    """Batch jobs: sessions that no user waits for. `size` of them are under way at once, next to the users' sessions.

    When one ends, the next begins, so that the server always has work and never a long queue. Sessions go in their
    order, none before its arrival. When the last user has gone, the running ones are aborted, which is no failure.

    `ends`: True where `end` ends it, before which it must not run dry; False where it ends with its last session, as
    a closed loop does.
    """

    def __init__(
        self,
        size: int,
        sessions: Sequence[Session],
        server: Server,
        log: EventLog,
        params: ClientParams,
        ends: bool,
    ) -> None:
        self._size = size
        self._last = sessions[-1].id
        self._sessions = iter(sessions)
        self._server = server
        self._log = log
        self._params = params
        self._ends = ends
        self._under_way: list[Client] = []
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Return when the last session has ended."""
        async with asyncio.TaskGroup() as slots:
            for _ in range(self._size):
                slots.create_task(self._slot())

    def end(self) -> None:
        """Abort the running sessions, as the last user has gone."""
        self._over.set_result(None)
        for client in self._under_way:
            client.abort()

    async def _slot(self) -> None:
        """Play one session after the other."""
        for session in self._sessions:
            begin_s = session.turns[0].arrival_s
            assert begin_s is not None
            if begin_s > self._loop.time():
                await asyncio.wait([self._over], timeout=begin_s - self._loop.time())
            begin_s = max(begin_s, self._loop.time())
            if self._over.done() or not self._params.begins(begin_s):
                return
            client = Client(session, self._server, self._log, self._params, in_background=self._ends)
            self._under_way.append(client)
            await client.run(begin_s)
            if isinstance(self._server, Leaving):
                await self._server.left(session.id)
            self._under_way.remove(client)
            if self._over.done():
                return
        if self._ends:
            self._log.event(self._loop.time(), "backlog_dry", self._last, 0, value=len(self._under_way))
