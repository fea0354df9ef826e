"""The interface of a kind of workload that a live run calls a server with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harness.kinds.kind import Answered

if TYPE_CHECKING:
    from harness.client.client_params import ClientParams
    from harness.events.log import EventLog
    from harness.live.endpoints.dialects.dialect import Dialect
    from harness.live.endpoints.logs import FailureLog, SendLog
    from harness.live.endpoints.target import TargetParams
    from workloads.trace import Trace


class LiveServer(Protocol):
    """A server for `play` behind a target's sockets."""

    target: TargetParams

    async def prepare(self) -> None:
        """Before time 0: find out what the target speaks, and make what will be sent. UserError where it cannot be
        used."""
        ...

    def expect(self, params: ClientParams) -> None:
        """Plan connections, once the clock is set."""
        ...

    async def aclose(self) -> None:
        """Hang up every connection, and wait until the servers know."""
        ...


@runtime_checkable
class LiveKind(Answered, Protocol):
    """A kind that can be measured at an endpoint, over real sockets."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        """Raise UserError when the users of `trace` cannot speak to the target."""
        ...

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        """Return the dialect that the endpoint will speak to a realtime `target`, whose dialect is known; UserError
        where that cannot serve these users."""
        ...

    def endpoint(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> LiveServer:
        """Return a server for `play` behind the target's sockets."""
        ...

    def floor(self, target: TargetParams) -> str:
        """Return the load put on the null server before each run (`harness.live.run.floor`)."""
        ...

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        """Name of the latency that is shown while a run goes on."""
        ...

    def target_timing(self, trace: Trace, client: ClientParams, turns: int | None = None) -> Any:
        """Return the `Timing` of an endpoint for which only the call log is known. `turns`: number of turns that are
        judged; None: all."""
        ...

    def load(
        self, workload: str, fields: Mapping[str, Any], sessions: int, rate: float | None, duration_s: float
    ) -> tuple[str, dict[str, Any]]:
        """Return the parameter that is the load, and the settings of a run with this number of concurrent sessions, or
        this number of new sessions per second, and this length.

        They depend on nothing else, so that a load is the same in every run. `fields`: parameters of the workload.
        UserError for a rate where the workload has times of its own.
        """
        ...
