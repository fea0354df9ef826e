"""Turns: users wait for replies, to which they listen, and which they may interrupt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from harness.metrics.classes import of_log
from harness.metrics.jobs import of_jobs
from harness.metrics.metric import Metric
from harness.metrics.rates import rate_span
from harness.metrics.turns import columns_of, summarise
from harness.request_tables.request_table import ABORTED, BARGED_IN, COMPLETED, request_table, typed
from harness.request_tables.steady_window import PHASE, Load, phases, steady_window
from workloads.deferred import Deferred

if TYPE_CHECKING:
    from harness.client.client_params import ClientParams
    from harness.events.log import EventLog
    from workloads.trace import Trace

_serve_turns = Deferred("harness.client.turns:serve_turns")
"""Plans and tables need no clients."""


class Turns:
    """The kind of users who wait for replies. Implements `harness.kinds.kind.OnePass` and `Answered`."""

    name = "turns"
    Timing = Load
    one_pass: Literal[True] = True

    async def play(self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int) -> None:
        await _serve_turns(trace, server, log, params, replicas)

    def requests(
        self, turns: pd.DataFrame, events: pd.DataFrame | Iterable[pd.DataFrame], timing: Load
    ) -> pd.DataFrame:
        requests = request_table(events, turns)
        requests[PHASE] = phases(requests, steady_window(requests, turns, timing))
        return requests

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame | Iterable[pd.DataFrame],
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Load,
    ) -> Mapping[str, Metric]:
        requests = typed(requests)
        window = steady_window(requests, turns, timing)
        span = rate_span(columns_of(requests), window, end_s)
        metrics = summarise(
            requests,
            steps,
            end_s,
            window=window,
            planned_turns=len(turns),
            planned_sessions=turns["session"].to_numpy(),
            entry=timing.entry,
        )
        return metrics | of_log(events, turns, requests, span) | of_jobs(requests, turns)

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame:
        return requests

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return np.isin(requests["status"], [COMPLETED, BARGED_IN, ABORTED])


def load_of(client: ClientParams, replicas: int = 1) -> Load:
    """Return the load of these users. `replicas`: number of replicas, each with `client.c` slots."""
    return Load(
        slots=None if client.c is None else client.c * replicas,
        stop_after_s=math.inf if client.stop_after_s is None else client.stop_after_s,
    )


def spoken(trace: Trace) -> bool:
    """Return whether any reply is spoken."""
    return bool(np.isfinite(trace.columns()["reply_audio_s"]).any())


TURNS = Turns()
