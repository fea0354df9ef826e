"""Turns: users wait for replies, to which they listen, and which they may interrupt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.client.client_params import ClientParams
from harness.client.turns import serve_turns
from harness.events.log import EventLog
from harness.metrics.classes import of_log
from harness.metrics.jobs import of_jobs
from harness.metrics.metric import Metric
from harness.metrics.turns import summarise
from harness.request_tables.live_window import PHASE, Window, counted, phases
from harness.request_tables.request_table import ABORTED, BARGED_IN, COMPLETED, request_table, typed
from workloads.trace import Trace


class Turns:
    """The kind of users who wait for replies. Implements `harness.kinds.kind.OnePass` and `Answered`."""

    name = "turns"
    Timing = Window
    one_pass: Literal[True] = True

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        await serve_turns(trace, server, log, params, replicas)

    def requests(
        self, turns: pd.DataFrame, events: pd.DataFrame | Iterable[pd.DataFrame], timing: Window
    ) -> pd.DataFrame:
        requests = request_table(events, turns)
        if not timing.whole:
            requests[PHASE] = phases(requests, timing)
        return requests

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame | Iterable[pd.DataFrame],
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Window,
    ) -> Mapping[str, Metric]:
        requests = typed(requests)
        steady = counted(requests)
        metrics = summarise(
            steady,
            steps,
            end_s if timing.whole else timing.end_s,
            planned_turns=len(turns) - (len(requests) - len(steady)),
            planned_sessions=turns["session"].to_numpy(),
            entry=timing.entry,
        )
        return metrics | of_log(events, turns, steady) | of_jobs(requests, turns)

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame:
        return requests

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return np.isin(requests["status"], [COMPLETED, BARGED_IN, ABORTED])


def spoken(trace: Trace) -> bool:
    """Return whether any reply is spoken."""
    return bool(np.isfinite(trace.columns()["reply_audio_s"]).any())


TURNS = Turns()
