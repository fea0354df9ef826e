"""Sessions that no user waits for, beside those of users: so many at once, and no longer than there are users.

As one ends the next begins, so that the server always has some to work on and never a long queue of them. When the last
user has gone, those under way are aborted, which is no failure.
"""

import asyncio
from collections.abc import Sequence

from harness.client.params import ClientParams
from harness.client.session import Client, Leaving, Server
from harness.records.log import EventLog
from workloads.trace import Session


class Pool:
    """Sessions in their order, each not before its arrival, `size` of them at once.

    `ends`: with `end`, before which it must not run dry; else with its last session, as in any closed loop.
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
        """Returns when the last session has ended."""
        async with asyncio.TaskGroup() as slots:
            for _ in range(self._size):
                slots.create_task(self._slot())

    def end(self) -> None:
        """There are no users any more."""
        self._over.set_result(None)
        for client in self._under_way:
            client.abort()

    async def _slot(self) -> None:
        """One session after the other."""
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
            self._log.event(self._loop.time(), "pool_dry", self._last, 0, value=len(self._under_way))
