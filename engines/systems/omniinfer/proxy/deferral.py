"""Deferred submission in front of the prefill replicas (OmniInfer section 5.1), attached to a pipeline.

`prefill` decides; this module gives it the proxy's knowledge: the requests handed over, and the times of first tokens.
An idle replica begins a batch with the requests that it gets; a first token completes its batch, and the other requests
handed over are the next one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from engines.builder import Parts, Serving
from engines.core.lifecycle import Lifecycle, Phase
from engines.core.router import ChoosingRouter
from engines.core.stage import ENTRY
from engines.systems.omniinfer.library import DividedParams
from engines.systems.omniinfer.proxy.prefill import PrefillQueue
from engines.turns import build_turns
from engines.turns.hook import Hook
from engines.turns.pipeline import Pipeline
from engines.turns.reply import Reply, ReplyRequest


class Deferral(Hook):
    """Holds requests, and sends each to a replica that is about to begin a batch; if several are, `router` chooses.
    `replicas`: the prefill replicas; `room`: tokens of a batch."""

    def __init__(self, pipeline: Pipeline, router: ChoosingRouter, replicas: int, room: int) -> None:
        self._pipeline = pipeline
        self._router = router
        self._queue: PrefillQueue[Reply] = PrefillQueue(
            replicas, self._tokens, self._choose, self._hand_over, self._begun, room=room
        )
        self._requests: dict[Reply, ReplyRequest] = {}
        """Replies whose prompts are not computed yet."""
        self._lives: dict[Reply, Lifecycle] = {}
        self._loop = asyncio.get_running_loop()
        self._poll_due = False
        self._timer: asyncio.TimerHandle | None = None

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        now = self._loop.time()
        life = self._lives[reply] = Lifecycle(now)
        life.enter(Phase.APC_MATCHING, now)
        life.enter(Phase.PREFILL_WAITING, now)
        self._requests[reply] = request
        self._queue.add(reply, len(request.prompt), now)
        self._poll_soon()
        return True

    def produced(self, reply: Reply) -> None:
        """Note a first token: it completes the request's batch."""
        now = self._loop.time()
        life = self._lives[reply]
        if self._requests.pop(reply, None) is not None:
            self._begun(reply)  # where it was thought to be in a later batch
            self._queue.answered(reply, now)
            life.enter(Phase.DECODE_WAITING, now)
            self._poll_soon()
        elif life.phase is Phase.DECODE_SCHEDULED:
            life.enter(Phase.DECODING, now)

    def handed_over(self, reply: Reply) -> None:
        self._lives[reply].enter(Phase.DECODE_SCHEDULED, self._loop.time())

    def closed(self, reply: Reply) -> None:
        """Drop a reply whose prompt is not computed yet, as nobody waits for it any more."""
        self._lives.pop(reply, None)
        if self._requests.pop(reply, None) is not None:
            self._queue.discard(reply, self._loop.time())
            self._poll_soon()

    def _tokens(self, reply: Reply) -> list[int]:
        request = self._requests[reply]
        cached = self._router.cached(request.prompt, request.features)
        return [max(1, len(request.prompt) - tokens) for tokens in cached]

    def _choose(self, reply: Reply, among: Sequence[int]) -> int:
        request = self._requests[reply]
        return self._router.choose(request.prompt, request.features, among)

    def _hand_over(self, reply: Reply, replica: int) -> None:
        self._lives[reply].enter(Phase.PREFILL_SCHEDULED, self._loop.time())
        self._pipeline.send(reply, self._requests[reply], (replica,))

    def _begun(self, reply: Reply) -> None:
        """Note that a reply's batch has begun; for one that is computed in parts the first."""
        life = self._lives[reply]
        if life.phase is Phase.PREFILL_SCHEDULED:
            life.enter(Phase.PREFILLING, self._loop.time())

    def _poll_soon(self) -> None:
        """Poll after all changes at this instant."""
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


def build(parts: Parts, params: DividedParams, chosen: Mapping[str, Any]) -> Serving:
    """Put OmniInfer together: a speaking system, with `Deferral` in front of its prefill replicas if that is asked
    for."""
    serving = build_turns.build(parts, params, chosen)
    if params.deferred:
        pipeline = serving.gateway.pipeline
        router = pipeline.routers[ENTRY]
        assert isinstance(router, ChoosingRouter), "`Divided.check` refuses others"
        prefill = pipeline.at("prefill")
        pipeline.attach(Deferral(pipeline, router, len(prefill), prefill[0].replica.max_tokens))
    return serving
