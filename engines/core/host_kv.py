"""KV of one replica on its way to and from the host's memory, and early news of its coming use."""

import math
from collections.abc import Mapping
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.kv_manager import EvictionIndex, EvictionMode, KvManager
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.request import StageRequest


class HostKv:
    """The transfers of each step, and their events. `manager` decides which KV returns early."""

    def __init__(self, replica: Replica, recorder: Recorder, manager: KvManager | None) -> None:
        assert replica.transfers is not None
        self.stage = replica.stage.name
        self.scheduler = replica.scheduler
        self.transfers = replica.transfers
        self.recorder = recorder
        self.manager = manager
        self._waits: dict[str, int] = {}
        self._waited: set[str] = set()

    @property
    def next_s(self) -> float | None:
        return self.transfers.next_s

    @property
    def busy(self) -> bool:
        """Return True while a transfer is under way, or vLLM's connector has yet to learn of one."""
        return bool(
            self.transfers.next_s is not None
            or self.scheduler.preloads.ids
            or self.scheduler.finished_req_ids
        )

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Return True if a round could do anything: compute, begin or end a transfer, or tell the connector which
        requests have gone."""
        next_s, scheduler = self.transfers.next_s, self.scheduler
        if (next_s is not None and next_s <= now) or scheduler.finished_req_ids or scheduler.preloads.offered:
            return True
        loading = scheduler.loading
        if not loading:
            return len(requests) > len(held)
        return any(id not in held and id not in loading for id in requests)

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        begin_s, loading = self.transfers.begin(self.scheduler, scheduled, now)
        for request_id in self.scheduler.deferred:
            request = requests.get(request_id)
            if request is None or request.started or request_id in self._waited:
                continue
            if request_id not in self._waits:
                self._event("load_start", request, now)
            self._waits[request_id] = loading.get(request_id, self._waits.get(request_id, 0))
        return begin_s

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        if scheduled is not None:
            self.transfers.end(scheduled, withdrawn, self.scheduler.requests)
        return self.transfers.finished(now)

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        """Take in KV from the host: for requests that wait for it, and for early loads of a manager."""
        arrived_s = self.transfers.arrived_s if arrived else {}
        preloads = self.scheduler.preloads
        preloads.receive(arrived_s)
        for request_id, at_s in arrived_s.items():
            if request_id in self._waits:
                self._waited.add(request_id)
                self._event("load_end", requests[request_id], at_s, self._waits[request_id])
        landed, preloads.landed = preloads.landed, []
        for session, blocks in landed:
            assert self.manager is not None
            self.manager.loaded(session, blocks, now)

    def started(self, row: Row, request: StageRequest, now: float) -> None:
        """Note that the request runs for the first time: it waits for nothing more, and has found its early loads."""
        loaded = self._waits.pop(request.id, None)
        if loaded is not None and request.id not in self._waited:
            self._event("load_end", request, now, 0)  # another request's load has brought its KV
        self._waited.discard(request.id)
        if self.manager is None or request.speculative:
            return
        scheduler = self.scheduler
        found = scheduler.block_ids(request.id)[: row.context // scheduler.block_size - (loaded or 0)]
        blocks = scheduler.preloads.hit(request.session, found)
        if blocks:
            self._event("preloaded", request, now, blocks)
        self.manager.turn_started(request.session, now)

    def forget(self, request_id: str) -> None:
        self._waits.pop(request_id, None)
        self._waited.discard(request_id)

    def drop(self, request_id: str) -> bool:
        """Return False: nothing is kept for others."""
        return False

    def _event(self, kind: str, request: StageRequest, now: float, blocks: float = math.nan) -> None:
        if not request.speculative:
            self.recorder.event(now, kind, request.session, request.turn, self.stage, blocks)


class ReplicaStore:
    """A replica's KV pool and its host memory, as a KV manager uses them: `engines.core.kv_manager.KvStore` over vLLM's
    scheduler and the copy engines."""

    def __init__(self, scheduler: "vllm.StageScheduler", transfers: "vllm.HostTransfers") -> None:
        self._scheduler = scheduler
        self._transfers = transfers
        self.block_bytes = transfers.block_bytes
        self.bandwidth = transfers.to_device.bandwidth

    def evict_by(self, index: EvictionIndex, mode: EvictionMode) -> None:
        self._scheduler.evict_by(index, mode)

    @property
    def allocatable_blocks(self) -> int:
        return self._scheduler.allocatable_blocks

    @property
    def empty_blocks(self) -> int:
        return self._scheduler.empty_blocks

    def missing(self, session: int) -> int:
        history = self._scheduler.histories.get(session)
        return 0 if history is None else self._scheduler.preloads.missing(history)

    def load(self, session: int, blocks: int) -> bool:
        history = self._scheduler.histories.get(session)
        return history is not None and self._scheduler.preloads.start(session, history, blocks)

    def cancel(self, session: int) -> None:
        self._scheduler.preloads.cancel(session)

    def queued_s(self) -> float:
        return self._transfers.to_device.queued_s()
