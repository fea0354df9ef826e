"""ConServe's baseline Non-Preemptive: online requests pass offline ones in the queue, and nothing takes back what has
been let in (section 6.1)."""

from collections import Counter

from engines.core.policy import Plan, RequestView, StageView
from engines.core.stage import ENTRY
from engines.systems.conserve.params import QueueParams


class NonPreemptive:
    """Implements `engines.core.policy.Policy`."""

    def __init__(self, params: QueueParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Puts running requests first, in the order in which they came in."""
        offline = self.params.offline_priority
        running = [request.id for request in view.requests if request.running]
        waiting = [request for request in view.requests if not request.running]
        waiting.sort(key=lambda request: (request.slo.priority >= offline, request.ready_s, request.id))
        return Plan([*running, *(request.id for request in waiting)])


def policy(stage: str, params: QueueParams) -> NonPreemptive | None:
    """At the stage that requests come to first."""
    return NonPreemptive(params) if stage == ENTRY else None
