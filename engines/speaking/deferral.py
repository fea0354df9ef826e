"""Deferred submission in front of the replicas that compute prompts (OmniInfer section 5.1; `engines.core.proxy`).

It knows what a proxy knows: what it has handed over, and when first tokens come. A replica that has nothing begins a
batch with what it is given; when a first token comes its batch is complete, and what has been handed over besides is
the next one.
"""

import asyncio
from collections.abc import Callable, Sequence

from rehearsal.engines.core.proxy.phases import Lifecycle, Phase
from rehearsal.engines.core.proxy.prefill import PrefillQueue
from rehearsal.engines.core.router import ChoosingRouter
from rehearsal.engines.speaking.reply import Reply, ReplyRequest


class Deferral:
    """Holds requests, and `submit`s each to a replica when that is about to begin a batch.

    `router` says which of those that are it is; `submit(reply, request, replica)` counts it there and hands it over.
    `room`: tokens of a batch.
    """

    def __init__(
        self,
        router: ChoosingRouter,
        replicas: int,
        room: int,
        submit: Callable[[Reply, ReplyRequest, Sequence[int]], object],
    ) -> None:
        self._router = router
        self._submit = submit
        self._queue: PrefillQueue[Reply] = PrefillQueue(
            replicas, self._tokens, self._choose, self._hand_over, self._begun, room=room
        )
        self._requests: dict[Reply, ReplyRequest] = {}
        self._loop = asyncio.get_running_loop()
        self._poll_due = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reply: Reply, request: ReplyRequest) -> None:
        """A complete turn has come; its prompt is tokenised."""
        now = self._loop.time()
        reply.life = Lifecycle(now)
        enter(reply, Phase.APC_MATCHING, now)
        enter(reply, Phase.PREFILL_WAITING, now)
        self._requests[reply] = request
        self._queue.add(reply, len(request.prompt), now)
        self._poll_soon()

    def answered(self, reply: Reply) -> None:
        """Its first token has come, and so the batch is complete that it was in."""
        now = self._loop.time()
        self._begun(reply)  # where it was thought to be in a later batch
        self._queue.answered(reply, now)
        del self._requests[reply]
        enter(reply, Phase.DECODE_WAITING, now)
        self._poll_soon()

    def discard(self, reply: Reply) -> None:
        """Nobody waits for it any more."""
        if self._requests.pop(reply, None) is not None:
            self._queue.discard(reply, self._loop.time())
            self._poll_soon()

    def _tokens(self, reply: Reply) -> list[int]:
        request = self._requests[reply]
        cached = self._router.cached(request.prompt, request.features)
        return [max(1, len(request.prompt) - each) for each in cached]

    def _choose(self, reply: Reply, among: Sequence[int]) -> int:
        request = self._requests[reply]
        return self._router.choose(request.prompt, request.features, among)

    def _hand_over(self, reply: Reply, replica: int) -> None:
        enter(reply, Phase.PREFILL_SCHEDULED, self._loop.time())
        self._submit(reply, self._requests[reply], (replica,))

    def _begun(self, reply: Reply) -> None:
        """Its batch has begun; of one that is computed in parts the first."""
        if reply.life is not None and reply.life.phase is Phase.PREFILL_SCHEDULED:
            reply.life.enter(Phase.PREFILLING, self._loop.time())

    def _poll_soon(self) -> None:
        """When all that happens at this instant has happened."""
        if not self._poll_due:
            self._poll_due = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._poll_due, now = False, self._loop.time()
        self._queue.due(now)
        if self._timer is not None:
            self._timer.cancel()
        next_s = self._queue.next_s(now)
        self._timer = None if next_s is None else self._loop.call_at(next_s, self._poll)


def enter(reply: Reply, phase: Phase, now: float) -> None:
    """The reply's next phase, where a proxy follows it."""
    if reply.life is not None:
        reply.life.enter(phase, now)
