"""The requests of one stage replica, in our terms and in vLLM's scheduler."""

import asyncio
from collections.abc import Sequence

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.host_kv import KvTraffic
from engines.core.kv_manager import KvManager
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.stage import HostCopies


class RequestTable:
    """The requests at a replica. They enter and leave between two steps.

    `manager`: manages KV that outlives requests, beyond LRU. `traffic`: KV on its way to and from elsewhere. `path`:
    may keep requests from vLLM.
    """

    def __init__(
        self,
        replica: Replica,
        recorder: Recorder,
        manager: KvManager | None,
        traffic: KvTraffic | None,
        path: "vllm.SchedulerPath",
    ) -> None:
        self.stage = replica.stage.name
        self.scheduler = replica.scheduler
        self.recorder = recorder
        self.manager = manager
        self.requests: dict[str, StageRequest] = {}
        self.truncated_blocks = 0
        self._caching = replica.stage.prefix_caching
        self._role = replica.stage.role
        copies = replica.stage.extension(HostCopies)
        self._stores_from = None if copies is None else copies.from_priority
        self._traffic = traffic
        self._path = path
        self._now = asyncio.get_running_loop().time

    def add(self, request: StageRequest) -> None:
        self.requests[request.id] = request
        if self.manager is not None and not request.speculative:
            self.manager.turn_arrived(request.session, self._now())
        if not self._path.add(request):
            self.add_to_vllm(request)

    def add_to_vllm(self, request: StageRequest) -> None:
        scheduler, session = self.scheduler, request.session
        hashes, hash_blocks = (), None
        if self._caching:
            hashes = scheduler.remember(session, request.prompt, request.features)
            hash_blocks = scheduler.block_size
        made = vllm.make_request(
            request.id,
            request.prompt + request.output if request.output else request.prompt,
            1 if self._role == "prefill" else request.max_tokens - len(request.output),
            request.arrive_s,
            hash_blocks,
            session,
            request.features,
            hashes,
            priority=request.slo.priority,
            stored=self._stores_from is None or request.slo.priority >= self._stores_from,
            sent=self._role == "prefill" and request.max_tokens > 1,
            fetched=self._role == "decode",
            short_keys=scheduler.short_keys,
        )
        if self._caching and not request.speculative:
            scheduler.add_turn(session, made)
        else:
            scheduler.add_request(made)

    def abort(self, request: StageRequest, sampled: Sequence[Row]) -> bool:
        """Cancel a request; False if it is not at this replica any more."""
        if request.id not in self.requests:
            if self._traffic is not None and self._traffic.drop(request.id):
                self._aborted(request)  # on its way to another replica
            return False
        computed = self.scheduler.computed_prompt(request.id) if request.background else 0
        if not self._path.abort(request.id):
            self.scheduler.abort([request.id])
        del self.requests[request.id]
        if self._traffic is not None:
            self._traffic.forget(request.id)
        request.produced += request.tokens_per_output * sum(row.request_id == request.id for row in sampled)
        self._aborted(request)
        if request.background:
            self.recorder.event(self._now(), "computed", request.session, request.turn, self.stage, computed)
        return True

    def _aborted(self, request: StageRequest) -> None:
        if request.speculative:
            return
        self.recorder.event(self._now(), "abort", request.session, request.turn, self.stage, request.produced)

    def truncate(self, session: int, tokens: int) -> None:
        """Drop the session's KV beyond its first `tokens` tokens: it cannot be hit again."""
        self.truncated_blocks += self.scheduler.truncate(session, tokens)

    def forget(self, session: int) -> None:
        self.scheduler.forget(session)
        if self.manager is not None:
            self.manager.forget(session)

    def record_starts(self, rows: Sequence[Row], now: float) -> None:
        """Log requests that run for the first time in a step that begins at `now`."""
        for row in rows:
            request = self.requests[row.request_id]
            if request.started:
                continue
            request.started = True
            if not request.speculative:
                self.recorder.event(now, "start", request.session, request.turn, self.stage)
            if self._traffic is not None:
                self._traffic.started(row, request, now)
