"""The interface of a kind of workload: its clients, its endpoint, its table, its metrics, its floor.

The kinds of ours are modules of this package. One of another package is named by an entry point of the group
`rehearsal.kinds`: an object of this protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from engines.deployments import Deployment
    from engines.server import ServerParams
    from harness.client.client_params import ClientParams
    from harness.endpoints.dialects.dialect import Dialect
    from harness.endpoints.target import TargetParams
    from harness.events.log import EventLog
    from harness.metrics.definitions import Definition
    from harness.metrics.metric import Metric
    from workloads.trace import Trace

P_contra = TypeVar("P_contra", contravariant=True)
"""Parameters of the systems that serve it."""


class Kind(Protocol[P_contra]):
    """`name`: as workloads and systems state it. Whatever it says of timing is its own: `timing` makes it, `measure`
    takes it."""

    name: str

    def check(self, params: P_contra, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        """UserError when a system with `params` could not serve `trace`, or its users could not act so."""
        ...

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Replicas that could work for `trace` at once."""
        ...

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        """Let the users of `trace` loose on `server`; returns when the last one has gone."""
        ...

    def timing(self, params: P_contra, deployment: Deployment, trace: Trace) -> Any:
        """Return the facts that the metrics need of a point, whose system has `params`."""
        ...

    def measure(
        self,
        trace: Trace,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        end_s: float,
        timing: Any,
    ) -> tuple[pd.DataFrame, Mapping[str, Metric]]:
        """The request table, and the metrics by name. Columns of `events` and `steps` as in `harness.events.log`;
        `turns` are the columns of `trace`, as far as they hold of what was served; `end_s`: of the run.

        The table has `session`, `turn` and `send_delay_s`. What means the same as in `harness.metrics` has its name and
        unit there, so that tables, pictures and comparisons know it.
        """
        ...


@runtime_checkable
class Fronted(Kind[P_contra], Protocol[P_contra]):
    """A kind whose users need more than the gateway of a system that serves another kind, `served_by`. `Server`: the
    parameters of the server, with those of what is put in front of it."""

    served_by: str
    Server: type[ServerParams]

    def front(self, gateway: Any, server: ServerParams, seed: int) -> Any:
        """A gateway for `play`, in front of the system's; `server`: a `Server`."""
        ...


@runtime_checkable
class OnePass(Kind[P_contra], Protocol[P_contra]):
    """A kind whose metrics read the events once and in order: `measure` takes them in pieces as well,
    so that a long run need not fit into memory."""

    one_pass: Literal[True]


@runtime_checkable
class OwnMetrics(Kind[P_contra], Protocol[P_contra]):
    """A kind with metrics that no other has. `headline`: the metrics of its tables, in their order, whoever's they are;
    its own are shown where a run has one of them."""

    definitions: Mapping[str, Definition]
    headline: Sequence[str]


@runtime_checkable
class LiveKind(Kind[P_contra], Protocol[P_contra]):
    """One that can also be measured at an endpoint, over real sockets."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        """UserError when the users of `trace` cannot speak to the target."""
        ...

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        """Return the dialect that the endpoint will speak to a realtime `target`, whose dialect is known; UserError
        where that cannot serve these users."""
        ...

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        """A server for `play` behind the target's sockets."""
        ...

    def floor(self, target: TargetParams) -> str:
        """The load that is put on the null server beside each run (`harness.live.run.floor`)."""
        ...

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        """The latency that is shown while a run goes on."""
        ...

    def target_timing(self, trace: Trace, client: ClientParams, events: pd.DataFrame, end_s: float) -> Any:
        """Returns `timing` of an endpoint about which nothing is known but who called it, and how that went."""
        ...

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame | None:
        """Rows of turns in the request table; None where there are none."""
        ...

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        """Which rows of the request table were answered, whatever with."""
        ...

    def serve_settings(self, trace: Trace) -> dict[str, Any]:
        """Return the settings of a server of ours besides its parameters (`harness.serving.ServeConfig`)."""
        ...

    def load(
        self,
        workload: str,
        known: Mapping[str, Any],
        sessions: int,
        rate: float | None,
        duration_s: float,
    ) -> tuple[str, dict[str, Any]]:
        """The parameter that is the load, and the settings of a run with so many concurrent sessions, or with so many
        that come per second, for so long. They depend on nothing else, so that a load is the same in every run.

        `known`: parameters of the workload. UserError for a rate where the workload has times of its own.
        """
        ...
