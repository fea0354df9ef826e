"""All users of a trace, whatever kind of workload it is."""

from typing import Any, Protocol, runtime_checkable

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.replays.kinds import kind_of
from workloads.trace import Trace


@runtime_checkable
class Expecting(Protocol):
    """A server that prepares for users before they come; harness.live's endpoints connect."""

    def expect(self, params: ClientParams) -> None: ...


async def serve_population(trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int = 1) -> None:
    """Play every session of `trace` against `server` and return when the last one has ended.

    `server` must serve the kind of workload that `trace` is. `replicas`: of it that can work at once, which a closed
    loop may count by.
    """
    if isinstance(server, Expecting):
        server.expect(params)
    await kind_of(trace).play(trace, server, log, params, replicas)
