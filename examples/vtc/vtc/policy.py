"""The virtual token counter: the client that was served least is served next (VTC, Algorithm 2)."""

from collections import Counter, deque

from engines.composition import Composition, Scheduler
from engines.core.policy import Plan, RequestView, StageView
from engines.turns.library import SPEAKING

INPUT, OUTPUT = 1, 2
"""Cost of a token of a prompt and of an answer, w_p and w_q of the paper."""


class Fair:
    """See `engines.core.policy.Policy` and `FollowingPolicy`. A client is a tenant of the trace. Of its requests the
    oldest is next. `served`: the counters, which all replicas of a stage share."""

    def __init__(self, served: Counter[str]) -> None:
        self.counters: Counter[str] = Counter()
        self._served = served
        self._seen: dict[str, RequestView] = {}
        self._paid: set[str] = set()
        self._waited: set[str] = set()

    def plan(self, view: StageView) -> Plan:
        """Requests that run go on; waiting ones come in the order of their clients' counters."""
        running = [request for request in view.requests if request.running]
        waiting = sorted((r for r in view.requests if not r.running), key=lambda request: request.ready_s)
        self._seen = {request.id: request for request in view.requests}
        self._paid &= self._seen.keys()
        for request in running:
            self._pay(request)
        self._lift({request.tenant for request in waiting})
        return Plan(order=[request.id for request in (*running, *self._fair(waiting, view.slot_budget))])

    def produced(self, request: str, tokens: int, finished: bool) -> None:
        """Count tokens of an answer. What a preempted request computes again is no service."""
        self._pay(self._seen[request])
        self._served[self._seen[request].tenant] += OUTPUT * tokens

    def _pay(self, request: RequestView) -> None:
        """Count the prompt, once the request runs."""
        if request.id not in self._paid:
            self._paid.add(request.id)
            self._served[request.tenant] += INPUT * request.prompt_tokens

    def _lift(self, now: set[str]) -> None:
        """A client that comes back has no credit from the time in which it asked for nothing."""
        here = now & self._waited
        for client in now - self._waited:
            least = min((self._served[each] for each in here), default=0)
            self._served[client] = max(self._served[client], least)
        self._waited = now

    def _fair(self, waiting: list[RequestView], most: int) -> list[RequestView]:
        """The first `most` requests to run, each charged with its prompt as soon as it is named."""
        counts, queues = Counter(self._served), dict[str, deque[RequestView]]()
        for request in waiting:
            queues.setdefault(request.tenant, deque()).append(request)
        order: list[RequestView] = []
        while queues and len(order) < most:
            client = min(queues, key=lambda each: (counts[each], each))
            order.append(queues[client].popleft())
            counts[client] += 0 if order[-1].id in self._paid else INPUT * order[-1].prompt_tokens
            if not queues[client]:
                del queues[client]
        return order


COMPONENTS = (
    Scheduler(
        "vtc",
        "the client that was served least first (VTC)",
        policy=lambda stage, params, served: Fair(served),
        shared=lambda stage, params: Counter(),
    ),
)
SYSTEMS = (Composition("vtc", "vLLM with VTC's order", SPEAKING, {"scheduler": "vtc"}, against=("vllm_omni_wo",)),)
