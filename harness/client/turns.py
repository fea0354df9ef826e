"""Users who take turns with a server: in an open loop each comes when scheduled; in a closed loop so many at once share
slots."""

import asyncio
from contextlib import nullcontext

from harness.client.params import ClientParams
from harness.client.pool import Pool
from harness.client.session import Client, Leaving, Server
from harness.log import EventLog
from workloads.trace import Session, Trace


async def serve_turns(
    trace: Trace, server: Server, log: EventLog, params: ClientParams, replicas: int = 1
) -> None:
    """Play every session of `trace` and return when the last one has ended.

    In a closed loop slots are acquired in the order in which they are asked for: by sessions in the order of their
    scheduled arrivals, or by each turn of a session anew. `replicas`: how many times c slots there are when
    `params.c_scope` is replica. Sessions of a pool take no slot.
    """
    loop = asyncio.get_running_loop()
    slots = None
    if params.c is not None:
        slots = asyncio.Semaphore(params.c * (replicas if params.c_scope == "replica" else 1))
    of_session, of_turn = (slots, None) if params.c_counts == "session" else (None, slots)

    async def user(client: Client, arrival_s: float) -> None:
        await asyncio.sleep(max(0.0, arrival_s - loop.time()))
        async with of_session or nullcontext():
            begin_s = loop.time() if of_session else arrival_s
            if params.begins(begin_s):
                await client.run(begin_s)
                if isinstance(server, Leaving):  # or the server would refuse the next user
                    await server.left(client.session.id)

    of_users = [session for session in trace.sessions if session.turns[0].pool is None]
    pools = [
        Pool(size, sessions, server, log, params, ends=bool(of_users))
        for (_, size), sessions in _pooled(trace).items()
    ]
    async with asyncio.TaskGroup() as background:
        for pool in pools:
            background.create_task(pool.run())
        async with asyncio.TaskGroup() as users:
            for session in of_users:
                arrival_s = session.turns[0].arrival_s
                assert arrival_s is not None
                if not params.begins(arrival_s):
                    continue
                users.create_task(
                    user(Client(session, server, log, params, of_turn), arrival_s),
                    name=f"session {session.id}",
                )
        if of_users:
            for pool in pools:
                pool.end()


def _pooled(trace: Trace) -> dict[tuple[str | None, int], list[Session]]:
    """The sessions of each pool, by class and size."""
    pools: dict[tuple[str | None, int], list[Session]] = {}
    for session in trace.sessions:
        first = session.turns[0]
        if first.pool is not None:
            pools.setdefault((first.request_class, first.pool), []).append(session)
    return pools
