"""The interface of a kind of workload, as far as replays and live runs share it: its users, its table, its metrics.

The kinds of ours are modules of this package. `harness.replays.kinds` and `harness.live.kinds` add what each side needs
of them. One of another package is named by an entry point of the group `rehearsal.kinds`: an object of this protocol
and of `harness.replays.kinds.kind.ReplayKind`; of `harness.live.kinds.kind.LiveKind` too where it can be called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from harness.client.client_params import ClientParams
    from harness.events.log import EventLog
    from harness.metrics.definitions import Definition
    from harness.metrics.metric import Metric
    from workloads.trace import Trace


class Kind(Protocol):
    """A kind of workload: how its users behave and how it is measured. `name`: as workloads and systems state it.
    `Timing`: the dataclass of numbers and texts that only `requests` and `metrics` read; None where they need none."""

    name: str
    Timing: type[Any] | None

    async def play(self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int) -> None:
        """Play the users of `trace` against `server`. Return when the last one has gone."""
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
class OnePass(Kind, Protocol):
    """A kind whose `requests` and `metrics` read the events once and in order: they also take them in pieces, so that a
    long run need not fit into memory."""

    one_pass: Literal[True]


@runtime_checkable
class OwnMetrics(Kind, Protocol):
    """A kind with metrics of its own. `headline`: the metrics of its tables, in order, its own or not; its own are
    shown where a run has one of them."""

    definitions: Mapping[str, Definition]
    headline: Sequence[str]


class Answered(Kind, Protocol):
    """A kind whose table also says what a live run asks: which rows are turns, and which were answered."""

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame | None:
        """Return the rows of turns in the request table; None where there are none."""
        ...

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        """Return which rows of the request table were answered, with anything."""
        ...
