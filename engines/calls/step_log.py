"""The steps of a replica that serves calls: as for turns, and the allocations that vLLM's pool refused."""

from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.step_cost import StepWork
from engines.core.step_log import StepLog

ALLOC_FAILS = ("alloc_fail_waiting", "alloc_fail_running")
"""Of the scheduler's counters, in the order of the values of an `alloc_fail` event."""


class CallStepLog(StepLog):
    """A round in which nothing ran and nothing changed leaves no row."""

    def __init__(self, replica: Replica, recorder: Recorder) -> None:
        super().__init__(replica, recorder)
        self._alloc_fails = (0, 0)
        self._recorded: tuple[int, ...] = ()

    def record(
        self,
        start_s: float,
        end_s: float,
        work: StepWork,
        tokens: int = 0,
        held: int = 0,
        preempted: int = 0,
    ) -> None:
        scheduler, counters = self.scheduler, self.scheduler.counters
        fails = (counters[ALLOC_FAILS[0]], counters[ALLOC_FAILS[1]])
        for path, (count, before) in enumerate(zip(fails, self._alloc_fails, strict=True)):
            if count > before:
                self.recorder.event(start_s, "alloc_fail", -1, -1, self.stage, path)
        self._alloc_fails = fails
        state = (
            len(scheduler.running),
            len(scheduler.requests),
            scheduler.num_waiting_for_streaming_input,
            scheduler.free_blocks,
        )
        if work.requests or preempted or state != self._recorded:
            self._recorded = state
            super().record(start_s, end_s, work, tokens, held, preempted)
