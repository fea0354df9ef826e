"""Frames: calls of audio that never stops, in frames that are due whatever the server does with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.client.client_params import ClientParams
from harness.client.interaction import Ending, serve_interactions
from harness.events.log import EventLog
from harness.metrics.frames import summarise_frames
from harness.metrics.metric import Metric
from harness.request_tables.frame_table import DELIVERED, EMPTY, Beat, frame_table, typed
from workloads.errors import UserError
from workloads.trace import Trace


class Frames:
    """The kind of calls without pause. Implements `harness.kinds.kind.Answered`."""

    name = "frames"
    Timing = Beat

    async def play(self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int) -> None:
        """Play the frames, always in an open loop."""
        await serve_interactions(trace, server, log, params)
        if isinstance(server, Ending):
            server.end_left()

    def requests(self, turns: pd.DataFrame, events: pd.DataFrame, timing: Beat) -> pd.DataFrame:
        return frame_table(events, turns, timing)

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Beat,
    ) -> Mapping[str, Metric]:
        del turns
        return summarise_frames(typed(requests), steps, events, end_s, timing)

    def turn_rows(self, requests: pd.DataFrame) -> None:
        return None

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return np.isin(requests["status"], [DELIVERED, EMPTY])


def period_s(trace: Trace) -> float:
    """Return the period of its frames, s."""
    return float(trace.columns()["audio_s"][0])


def check_loop(c: int | None, trace: Trace) -> None:
    """Raise UserError for a closed loop."""
    if c is not None:
        raise UserError(
            f"c={c} makes a closed loop, but the audio of workload {trace.header.generator!r} does not wait; "
            "leave c out and set sessions."
        )


FRAMES = Frames()
