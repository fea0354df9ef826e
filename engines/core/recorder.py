"""Where engines write what happened; the harness gives the one that keeps it."""

import math
from typing import Protocol

import numpy as np


class Recorder(Protocol):
    """The run's event log, as seen from the server side."""

    def event(
        self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = math.nan
    ) -> None:
        """One event at `t` s. Kinds and the meaning of `value` stand in `harness.records.log`."""
        ...

    def event_of_each(self, t: float, kind: str, who: np.ndarray, stage: str, value: float) -> None:
        """The same event of several, in their order. `who`: session and turn of each."""
        ...

    def divide(self) -> None:
        """Steps have shares of a GPU's SMs; said before the first of them."""
        ...

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int, sms: float = math.nan) -> None:
        """One engine step, from the call of `schedule` at `t_s` to its output `dt_s` later.

        `counts`: replica, requests, tokens, prefill tokens, running, waiting, held, KV blocks used, KV blocks,
        preempted. `sms`: that it was given, where they are divided.
        """
        ...
