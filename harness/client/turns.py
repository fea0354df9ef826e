"""Users who take turns with a server: in an open loop each comes when scheduled; in a closed loop so many at once share
slots."""

import asyncio
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

from harness.client.params import ClientParams
from harness.client.session import Client, Server
from harness.log import EventLog
from workloads.trace import Session, Trace


@runtime_checkable
class Leaving(Protocol):
    """A server that users take a while to leave."""

    async def left(self, session: int) -> None:
        """Returns when the server knows that the user has hung up."""
        ...


async def serve_turns(
    trace: Trace, server: Server, log: EventLog, params: ClientParams, replicas: int = 1
) -> None:
    """Play every session of `trace` and return when the last one has ended.

    In a closed loop slots are acquired in the order in which they are asked for: by sessions in the order of their
    scheduled arrivals, or by each turn of a session anew. `replicas`: how many times c slots there are when
    `params.c_scope` is replica.
    """
    loop: Any = asyncio.get_running_loop()
    slots = None
    if params.c is not None:
        slots = asyncio.Semaphore(params.c * (replicas if params.c_scope == "replica" else 1))
    of_session, of_turn = (slots, None) if params.c_counts == "session" else (None, slots)

    async def user(session: Session, arrival_s: float) -> None:
        async with of_session or nullcontext():
            begin_s = loop.time() if of_session else arrival_s
            if params.begins(begin_s):
                await Client(session, server, log, params, of_turn).run(begin_s)
                if isinstance(server, Leaving):  # or the server would refuse the next user
                    await server.left(session.id)

    begun_s = loop.time()
    async with asyncio.TaskGroup() as users:
        for session in trace.each_session():
            arrival_s = session.turns[0].arrival_s
            assert arrival_s is not None
            if not params.begins(arrival_s):
                continue
            if arrival_s > begun_s:
                await _arrival(loop, arrival_s)
            users.create_task(user(session, arrival_s), name=f"session {session.id}")


async def _arrival(loop: Any, at_s: float) -> None:
    """Returns at `at_s`, before anything else that is due then has happened: users come, whatever the server does."""
    due = loop.create_future()
    timer = loop.call_first_at(at_s, due.set_result, None)
    try:
        await due
    finally:
        timer.cancel()
