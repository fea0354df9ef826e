"""Chat completions of documents, which nobody waits for: one follows the other for as long as the run lasts."""

import asyncio

from harness.client.params import ClientParams
from harness.client.session import Client
from harness.live.client.text_endpoint import TextEndpoint
from harness.records.log import EventLog
from workloads.trace import Trace, Turn

AGAIN_S = 1.0
"""After a document that failed, before the next one takes its place: a server that refuses them would else be asked as
fast as it refuses, which its users would feel. [chosen]"""


class BatchEndpoint(TextEndpoint):
    """Nobody knows before how many documents there will be, so requests are made while others are answered: one ahead
    for each that is in flight, in the order in which they come."""

    async def prepare(self) -> None:
        self._coming = iter(self.trace.sessions)
        self.failed: set[int] = set()
        await self.connect(self.trace.sessions[: self.target.batch])
        for _ in range(self.target.batch or 0):
            self._make_next()

    def commit(self, turn: Turn, end_s: float) -> None:
        super().commit(turn, end_s)
        self._loop.call_soon(self._make_next)  # behind requests that are due now as well

    def lost(self, session: int) -> None:
        self.failed.add(session)

    async def aclose(self) -> None:
        """Documents under way are cut: nobody has failed them."""
        for asking in self._asking.values():
            asking.stop()
        await super().aclose()

    def _make_next(self) -> None:
        session = next(self._coming, None)
        if session is not None:
            self._ready[session.id] = self._make(session)


async def work_off(trace: Trace, endpoint: BatchEndpoint, log: EventLog, params: ClientParams) -> None:
    """Keep `params.c` documents in flight from time 0 on, until there are no more.

    Not as users of a closed loop, who are all there from the start: to wake so many takes tens of ms. [measured]
    """
    loop, coming = asyncio.get_running_loop(), iter(trace.sessions)

    async def place() -> None:
        await asyncio.sleep(max(0.0, -loop.time()))
        begin_s = 0.0
        for session in coming:
            await Client(session, endpoint, log, params).run(begin_s)
            if session.id in endpoint.failed:
                await asyncio.sleep(AGAIN_S)
            begin_s = loop.time()

    async with asyncio.TaskGroup() as places:
        for _ in range(params.c or 0):
            places.create_task(place(), name="document")
