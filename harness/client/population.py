"""All users of a trace: in an open loop each comes when scheduled; in a closed loop at most c are there at once."""

import asyncio
from contextlib import nullcontext

from harness.client.params import ClientParams
from harness.client.session import Client, Server
from harness.log import EventLog
from workloads.trace import Trace


async def serve_population(trace: Trace, server: Server, log: EventLog, params: ClientParams) -> None:
    """Play every session of ``trace`` against ``server`` and return when the last one has ended.

    In a closed loop the sessions take the c places in the order of their scheduled arrivals.
    """
    loop = asyncio.get_running_loop()
    places = asyncio.Semaphore(params.c) if params.c else nullcontext()

    async def user(client: Client, arrival_s: float) -> None:
        await asyncio.sleep(max(0.0, arrival_s - loop.time()))
        async with places:
            await client.run(loop.time() if params.c else arrival_s)

    async with asyncio.TaskGroup() as users:
        for session in trace.sessions:
            arrival_s = session.turns[0].arrival_s
            assert arrival_s is not None
            users.create_task(
                user(Client(session, server, log, params), arrival_s), name=f"session {session.id}"
            )
