"""Waiting sessions whose KV a full pool takes back, which stock vLLM never does.

vLLM preempts running requests only. A session between two chunks, or with a waiting chunk, keeps its blocks; so when
the pool is full and no request runs, none ever will (Metronome specification, finding 1). This module does what vLLM's
pull request 49439 proposes, around stock `schedule`: when an allocation fails and no request is running, another
resumable waiting session is preempted and the older request tried again; the victim stays queued and computes its whole
context again when it fits.

Only the description of the proposal was at hand. Differences from it: whole rounds are repeated, not one allocation; a
victim keeps the status in which it waited (the worker learns of the preemption all the same) and goes to the end of the
queue; and sessions that wait for input are victims, too. Otherwise a preempted session would wait until all others
happen to have input at once.
"""

from collections import Counter
from collections.abc import Callable

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus, StreamingUpdate


class Refusals:
    """Counts the failed allocations of the pool of `manager`; `last`: the request of the last one."""

    def __init__(self, manager: KVCacheManager, counters: Counter[str]) -> None:
        self.counters = counters
        self.last: Request | None = None
        allocate = manager.allocate_slots

        def allocate_slots(request: Request, *args, **kwargs):
            blocks = allocate(request, *args, **kwargs)
            if blocks is None:
                self._count(request)
            return blocks

        manager.allocate_slots = allocate_slots  # type: ignore[method-assign]

    def _count(self, request: Request) -> None:
        self.last = request
        running = request.status == RequestStatus.RUNNING
        self.counters["alloc_fail_running" if running else "alloc_fail_waiting"] += 1


class Recovery:
    """Takes blocks back from the waiting sessions of one scheduler, whose pool `refusals` watches.

    Counted there: sessions preempted (`recovered`).
    """

    def __init__(self, scheduler: Scheduler, refusals: Refusals) -> None:
        self._scheduler = scheduler
        self._refusals = refusals

    def retry(self, output: SchedulerOutput, schedule: Callable[[], SchedulerOutput]) -> SchedulerOutput:
        """Preempt waiting sessions until `schedule` finds something to do, after `output` had nothing in it.

        The returned output also lists the requests that finished or were preempted in the empty rounds.
        """
        refusals = self._refusals
        while not output.num_scheduled_tokens and not self._scheduler.running:
            refused = refusals.last
            victim = None if refused is None else self._victim(refused)
            if victim is None:
                return output
            self._preempt(victim)
            refusals.last = None
            again = schedule()
            again.finished_req_ids |= output.finished_req_ids
            again.preempted_req_ids = (again.preempted_req_ids or set()) | (output.preempted_req_ids or set())
            output = again
        return output

    def _victim(self, refused: Request) -> Request | None:
        """Return the latest session that holds blocks and does not run: vLLM's own order of victims."""
        sessions = [
            request
            for request in self._scheduler.kv_holding_waiting
            if request.resumable
            and request is not refused
            and request.status in (RequestStatus.WAITING, RequestStatus.WAITING_FOR_STREAMING_REQ)
        ]
        return max(reversed(sessions), key=lambda r: (r.priority, r.arrival_time), default=None)

    def _preempt(self, session: Request) -> None:
        scheduler, status = self._scheduler, session.status
        paused = status == RequestStatus.WAITING_FOR_STREAMING_REQ
        if paused:
            _settle(scheduler, session)
        scheduler.kv_holding_waiting.remove_request(session)
        session.status = RequestStatus.RUNNING  # vLLM knows no other that can be preempted
        scheduler._preempt_request(session, session.arrival_time)
        session.status = status
        scheduler.num_waiting_for_streaming_input += paused
        scheduler.waiting.remove_request(session)
        scheduler.waiting.add_request(session)  # behind the request that was refused
        self._refusals.counters["recovered"] += 1


def _settle(scheduler: Scheduler, session: Request) -> None:
    """Make the computed tokens of the session's last answer part of its prompt, as its next chunk would."""
    assert session.sampling_params is not None
    nothing = StreamingUpdate(None, None, session.max_tokens, session.arrival_time, session.sampling_params)
    scheduler._update_request_as_session(session, nothing)
