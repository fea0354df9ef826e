"""The protocols by which engines log events and steps; the harness brings the recorder."""

import math
from typing import Protocol

import numpy as np

from engines.core.replica import Replica
from engines.core.step_cost import StepWork


class Recorder(Protocol):
    """The run's event log, as seen from the server side."""

    def event(self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = math.nan) -> None:
        """Log one event at `t` s. `harness.events.log` lists the kinds and the meaning of `value`."""

    def event_of_each(self, t: float, kind: str, turns: np.ndarray, stage: str, value: float) -> None:
        """Log the same event of several turns, in their order. `turns`: session and turn of each."""

    def divide(self) -> None:
        """Declare, before the first step, that steps have shares of a GPU's SMs."""

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int, sms: float = math.nan) -> None:
        """Log one engine step, from the call of `schedule` at `t_s` to its output `dt_s` later.

        `counts`: replica, requests, tokens, prefill tokens, running, waiting, held, KV blocks used, KV blocks,
        preempted. `sms`: SMs of the step, where they are divided.
        """


class StepLog:
    """Logs each step, and the queues and the pool after it.

    `stage`: the name of its steps, where one replica has several stages.
    """

    def __init__(self, replica: Replica, recorder: Recorder, stage: str | None = None) -> None:
        self.stage = stage or replica.stage.name
        self.index = replica.index
        self.scheduler = replica.scheduler
        self.recorder = recorder
        self._keeps_kv = not replica.stage.modelled
        self._last: tuple[int, ...] = ()

    def record(
        self,
        start_s: float,
        end_s: float,
        work: StepWork,
        tokens: int = 0,
        held: int = 0,
        preempted: int = 0,
        sms: float = math.nan,
        queued: int = 0,
    ) -> None:
        """Log a step that computed `tokens` in all, or a moment without a step in which requests have left. `held`:
        requests that may not run. `sms`: SMs of the step. `queued`: requests that wait outside vLLM's queues."""
        scheduler = self.scheduler
        used = allocatable = 0
        if self._keeps_kv:
            allocatable = scheduler.allocatable_blocks
            used = allocatable - scheduler.free_blocks
        paused = scheduler.num_waiting_for_streaming_input
        self._last = (
            self.index,
            work.requests,
            tokens,
            work.prompt,
            len(scheduler.running),
            queued if scheduler.all_run else len(scheduler.waiting_requests()) - paused + queued,
            held + paused,
            used,
            allocatable,
            preempted,
        )
        self.recorder.step(start_s, end_s - start_s, self.stage, *self._last, sms=sms)

    def repeat(self, start_s: float, end_s: float) -> None:
        """Log a step that differs from the last one only in its time."""
        self.recorder.step(start_s, end_s - start_s, self.stage, *self._last)
