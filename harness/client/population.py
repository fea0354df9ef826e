"""All users of a trace: in an open loop each comes when scheduled; in a closed loop so many at once share slots.

Users of a trace of frames are always an open loop, and another kind of client.
"""

import asyncio
from contextlib import nullcontext
from typing import Protocol, cast, runtime_checkable

import numpy as np

from engines.deployment import Deployment
from harness.client.interaction import InteractionServer, serve_interactions
from harness.client.params import ClientParams
from harness.client.session import Client, Server
from harness.log import EventLog
from workloads.registry import serves
from workloads.trace import Trace


@runtime_checkable
class Expecting(Protocol):
    """A server that prepares for users before they come; harness.live's endpoints connect."""

    def expect(self, params: ClientParams) -> None: ...


@runtime_checkable
class Leaving(Protocol):
    """A server that users take a while to leave."""

    async def left(self, session: int) -> None:
        """Returns when the server knows that the user has hung up."""
        ...


async def serve_population(
    trace: Trace, server: Server | InteractionServer, log: EventLog, params: ClientParams, replicas: int = 1
) -> None:
    """Play every session of `trace` against `server` and return when the last one has ended.

    In a closed loop slots are acquired in the order in which they are asked for: by sessions in the order of their
    scheduled arrivals, or by each turn of a session anew. `replicas`: how many times c slots there are when
    `params.c_scope` is replica. `server` must serve what the trace holds, turns or frames.
    """
    if isinstance(server, Expecting):
        server.expect(params)
    if serves(trace) == "frames":
        await serve_interactions(trace, cast(InteractionServer, server), log, params)
    else:
        await _serve_turns(trace, cast(Server, server), log, params, replicas)


def working_replicas(deployment: Deployment, trace: Trace) -> int:
    """Replicas that could work for `trace` at once: of the talker, where something is spoken, or of the first stage."""
    speaks = deployment.speaks and np.isfinite(trace.columns()["reply_audio_s"]).any()
    return len(deployment.stages["talker" if speaks else deployment.entry].gpus)


async def _serve_turns(
    trace: Trace, server: Server, log: EventLog, params: ClientParams, replicas: int
) -> None:
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

    async with asyncio.TaskGroup() as users:
        for session in trace.sessions:
            arrival_s = session.turns[0].arrival_s
            assert arrival_s is not None
            if not params.begins(arrival_s):
                continue
            users.create_task(
                user(Client(session, server, log, params, of_turn), arrival_s), name=f"session {session.id}"
            )
