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
    """A kind of workload: how its users behave and how it is measured. `name`: as workloads and systems state it.
    `Timing`: the dataclass of numbers and texts that `timing` makes, and only `requests` and `metrics` read; None where
    `timing` returns None."""

    name: str
    Timing: type[Any] | None

    def check(self, params: P_contra, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        """Raise UserError when a system with `params` cannot serve `trace`, or its users cannot act so."""
        ...

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Return the number of replicas that can work for `trace` at once."""
        ...

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        """Play the users of `trace` against `server`. Return when the last one has gone."""
        ...

    def timing(self, params: P_contra, deployment: Deployment, trace: Trace) -> Any:
        """Return the facts that the metrics need about a point whose system has `params`."""
        ...

    def requests(self, turns: pd.DataFrame, events: pd.DataFrame, timing: Any) -> pd.DataFrame:
        """Return the request table, which a record stores: a row for each turn that began.

        Columns of `events` are as in `harness.events.log`. `turns` are the columns of the trace, as far as they hold
        for the served turns. The table has `session`, `turn` and `send_delay_s`. Columns and metrics with the meaning
        of one in `harness.request_tables` and `harness.metrics` have its name and unit, so that tables, pictures and
        comparisons know them.
        """
        ...

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Any,
    ) -> Mapping[str, Metric]:
        """Return the metrics by name, whenever a record is read: `requests` is its table, `end_s` the end of the run,
        the others are as there."""
        ...


@runtime_checkable
class Fronted(Kind[P_contra], Protocol[P_contra]):
    """A kind that puts a gateway of its own in front of a system of another kind, `served_by`. `Server`: the parameters
    of the server, including those of the gateway."""

    served_by: str
    Server: type[ServerParams]

    def front(self, gateway: Any, server: ServerParams, seed: int) -> Any:
        """Return a gateway for `play`, in front of the system's; `server`: a `Server`."""
        ...


@runtime_checkable
class OnePass(Kind[P_contra], Protocol[P_contra]):
    """A kind whose `requests` and `metrics` read the events once and in order: they also take them in pieces, so that a
    long run need not fit into memory."""

    one_pass: Literal[True]


@runtime_checkable
class OwnMetrics(Kind[P_contra], Protocol[P_contra]):
    """A kind with metrics of its own. `headline`: the metrics of its tables, in order, its own or not; its own are
    shown where a run has one of them."""

    definitions: Mapping[str, Definition]
    headline: Sequence[str]


@runtime_checkable
class LiveKind(Kind[P_contra], Protocol[P_contra]):
    """A kind that can also be measured at an endpoint, over real sockets."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        """Raise UserError when the users of `trace` cannot speak to the target."""
        ...

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        """Return the dialect that the endpoint will speak to a realtime `target`, whose dialect is known; UserError
        where that cannot serve these users."""
        ...

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        """Return a server for `play` behind the target's sockets."""
        ...

    def floor(self, target: TargetParams) -> str:
        """Return the load put on the null server before each run (`harness.live.run.floor`)."""
        ...

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        """Name of the latency that is shown while a run goes on."""
        ...

    def target_timing(
        self,
        trace: Trace,
        client: ClientParams,
        events: pd.DataFrame,
        end_s: float,
        turns: int | None = None,
    ) -> Any:
        """Return `timing` of an endpoint for which only the call log is known. `turns`: number of turns that are
        judged; None: all."""
        ...

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame | None:
        """Return the rows of turns in the request table; None where there are none."""
        ...

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        """Return which rows of the request table were answered, with anything."""
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
        """Return the parameter that is the load, and the settings of a run with this number of concurrent sessions, or
        this number of new sessions per second, and this length.

        They depend on nothing else, so that a load is the same in every run. `known`: parameters of the workload.
        UserError for a rate where the workload has times of its own.
        """
        ...
