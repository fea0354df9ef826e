"""The virtual token counter: the client that was served least is served next (VTC, Algorithm 2)."""

from collections import Counter, deque

from engines.composition import Composition, Scheduler
from engines.core.policy import Plan, RequestView, StageView
from engines.turns.library import SPEAKING

INPUT, OUTPUT = 1, 2
"""Cost of a token of a prompt and of an answer, w_p and w_q of the paper."""


class Fair:
    """See `engines.core.policy.Policy`. A client is a class of the trace. Of its requests the oldest is next."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._served: Counter[str] = Counter()
        self._seen: dict[str, int] = {}
        self._waited: set[str] = set()

    def plan(self, view: StageView) -> Plan:
        """Requests that run go on; waiting ones come in the order of their clients' counters."""
        running = [request for request in view.requests if request.running]
        waiting = sorted((r for r in view.requests if not r.running), key=lambda request: request.ready_s)
        for request in running:
            self._charge(request)
        self._seen = {r.id: self._seen[r.id] for r in view.requests if r.id in self._seen}
        self._lift({_client(request) for request in waiting})
        return Plan(order=[request.id for request in (*running, *self._fair(waiting, view.slot_budget))])

    def _charge(self, request: RequestView) -> None:
        """The prompt counts when a request first runs, and each token of the answer when it is there. What a preempted
        request computes again is no service."""
        before = self._seen.get(request.id)
        cost = INPUT * request.tokens if before is None else OUTPUT * (request.tokens - before)
        self._served[_client(request)] += cost
        self._seen[request.id] = request.tokens

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
            queues.setdefault(_client(request), deque()).append(request)
        order: list[RequestView] = []
        while queues and len(order) < most:
            client = min(queues, key=lambda each: (counts[each], each))
            order.append(queues[client].popleft())
            counts[client] += 0 if order[-1].id in self._seen else INPUT * order[-1].tokens
            if not queues[client]:
                del queues[client]
        return order


def _client(request: RequestView) -> str:
    return request.slo.request_class or ""


COMPONENTS = (
    Scheduler("vtc", "the client that was served least first (VTC)", policy=lambda stage, params: Fair()),
)
SYSTEMS = (
    Composition("vtc", "vLLM with VTC's order", SPEAKING, {"scheduler": "vtc"}, against=("vllm_omni_wo",)),
)
