"""What the harness has to know of calls on an open microphone over real sockets (`harness.kinds.kind.LiveKind`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.client.params import ClientParams
from harness.kinds.turns import TURNS
from harness.live.target import TargetParams
from harness.log import EventLog
from harness.metrics.live_window import Window
from workloads.errors import UserError
from workloads.trace import Trace


class OverSockets:
    """As turns are, but for the endpoint."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        TURNS.check_target(target, trace, c)
        if target.modalities != "audio":
            raise UserError(
                f"modalities={target.modalities}: the users of workload {trace.header.generator!r} listen; set "
                "modalities=audio."
            )
        if target.batch is not None:
            raise UserError(
                f"no batch goes beside workload {trace.header.generator!r}; leave batch out, or set workload=sharegpt."
            )

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        from harness.live.client.duplex_endpoint import DuplexEndpoint

        if target.turn_detection == "client":
            target = target.model_copy(update={"turn_detection": "server"})
        return DuplexEndpoint(trace, target, log, sends, failures)

    def floor(self, target: TargetParams) -> str:
        return TURNS.floor(target)

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        return TURNS.first_answer(target, trace)

    def target_timing(self, trace: Trace, client: ClientParams, events: pd.DataFrame, end_s: float) -> Window:
        return TURNS.target_timing(trace, client, events, end_s)

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame:
        return requests

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return TURNS.answered(requests)

    def serve_settings(self, trace: Trace) -> dict[str, Any]:
        return {}

    def load(
        self,
        workload: str,
        known: Mapping[str, Any],
        sessions: list[int],
        rates: list[float] | None,
        duration_s: float,
        most: int | None,
    ) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        return TURNS.load(workload, known, sessions, rates, duration_s, most)
