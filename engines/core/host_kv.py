"""KV of one replica on its way to and from the host's memory, with early news of its coming use, and KV that it hands
over to another replica of its stage, or takes over from it."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.kv_manager import KvManager
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.request import StageRequest


class KvTraffic(Protocol):
    """KV of one replica on its way to and from host memory (`HostKv`) or other replicas (`HandedKv`). Its loop and
    its table of requests drive it."""

    stage: str
    scheduler: "vllm.StageScheduler"
    recorder: Recorder
    next_s: float | None = None
    """The time of the next look if nobody wakes the loop, s."""

    def __init__(self, replica: Replica, recorder: Recorder) -> None:
        self.stage = replica.stage.name
        self.scheduler = replica.scheduler
        self.recorder = recorder

    @property
    def busy(self) -> bool:
        """Return True while anything is under way, or kept for another replica."""
        ...

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Return True if a round could do anything: compute, or take in what `busy` tells of."""
        loading = self.scheduler.loading
        if not loading:
            return len(requests) > len(held)
        return any(id not in held and id not in loading for id in requests)

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        """Start the transfers that vLLM asked for in this round; returns when its work can begin (s)."""
        ...

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        """End the step; returns all that has arrived by `now`, for vLLM's scheduler, or None."""

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        """Take in the arrivals that vLLM's scheduler knows of, if any."""

    def started(self, row: Row, request: StageRequest, now: float) -> None:
        """Note that the request runs for the first time."""

    def forget(self, request_id: str) -> None:
        """Forget an aborted request."""

    def drop(self, request_id: str) -> bool:
        """Drop the KV that is kept of a request, as nobody will ask for it; False if none is kept."""
        return False

    def _event(self, kind: str, request: StageRequest, now: float, blocks: float = math.nan) -> None:
        self.recorder.event(now, kind, request.session, request.turn, self.stage, blocks)


class HostKv(KvTraffic):
    """The transfers of each step, and their events. `manager` decides which KV returns early."""

    def __init__(self, replica: Replica, recorder: Recorder, manager: KvManager | None) -> None:
        super().__init__(replica, recorder)
        assert replica.transfers is not None
        self.transfers = replica.transfers
        self.manager = manager
        self._waits: dict[str, int] = {}
        self._waited: set[str] = set()

    @property
    def next_s(self) -> float | None:
        return self.transfers.next_s

    @property
    def busy(self) -> bool:
        """Return True while a transfer is under way, or vLLM's connector has yet to learn of one."""
        return bool(self.transfers.next_s is not None or self.scheduler.preloads.ids or self.scheduler.finished_req_ids)

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Return True if a round could do anything: compute, begin or end a transfer, or tell the connector which
        requests have gone."""
        next_s, scheduler = self.transfers.next_s, self.scheduler
        if (next_s is not None and next_s <= now) or scheduler.finished_req_ids or scheduler.preloads.offered:
            return True
        return super().runnable(requests, held, now)

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
        cached_ids = scheduler.block_ids(request.id)[: row.context // scheduler.block_size - (loaded or 0)]
        blocks = scheduler.preloads.hit(request.session, cached_ids)
        if blocks:
            self._event("preloaded", request, now, blocks)
        self.manager.turn_started(request.session, now)

    def forget(self, request_id: str) -> None:
        self._waits.pop(request_id, None)
        self._waited.discard(request_id)

    def _event(self, kind: str, request: StageRequest, now: float, blocks: float = math.nan) -> None:
        if not request.speculative:
            super()._event(kind, request, now, blocks)


class HandedKv(KvTraffic):
    """The hand-overs of one replica.

    A prefill replica keeps its KV (`keep`) until a decode replica has it, or nobody wants it (`drop`). A decode replica
    expects a request's KV from a source (`expect`), and fetches it when vLLM has allocated its blocks. `wake`: makes
    the replica's loop look again.
    """

    def __init__(self, replica: Replica, recorder: Recorder, wake: Callable[[], None]) -> None:
        super().__init__(replica, recorder)
        assert replica.port is not None
        self.port = replica.port
        self.fabric = replica.fabric
        self.wake = wake
        self._kept: dict[str, None] = {}
        self._sources: dict[str, HandedKv] = {}
        self._gone: list[str] = []
        self._come: dict[str, int] = {}
        self._reported: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        return bool(self._kept or self._sources or self._gone or self._come)

    def keep(self, request_id: str) -> None:
        """Keep the KV of a request that has its first token here, for another replica to continue."""
        self._kept[request_id] = None

    def drop(self, request_id: str) -> bool:
        if request_id not in self._kept:
            return False
        self._let_go(request_id)
        return True

    def expect(self, request_id: str, source: "HandedKv") -> None:
        """Expect the request here; `source` keeps its KV."""
        self._sources[request_id] = source

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        return bool(self._gone or self._come) or super().runnable(requests, held, now)

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        for fetch in scheduled.kv_connector_metadata.fetches:
            request, source = requests[fetch.request_id], self._sources[fetch.request_id]
            self._event("load_start", request, now)
            arrived = partial(self._arrived, fetch.request_id, fetch.blocks)
            self.fabric.send(source.port, self.port, fetch.size_bytes, arrived)
        return now

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        if not self._gone and not self._come:
            return None
        gone, self._gone = self._gone, []
        self._reported, self._come = self._come, {}
        return vllm.handed_over(gone, self._reported)

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        reported, self._reported = self._reported, {}
        for request_id, blocks in reported.items():
            if request_id in requests:
                self._event("load_end", requests[request_id], now, blocks)

    def forget(self, request_id: str) -> None:
        unfetched, self.scheduler.hand_overs.unfetched = self.scheduler.hand_overs.unfetched, []
        for unfetched_id in unfetched:
            self._sources.pop(unfetched_id).drop(unfetched_id)

    def _arrived(self, request_id: str, blocks: int) -> None:
        self._come[request_id] = blocks
        self.wake()
        self._sources.pop(request_id)._let_go(request_id)

    def _let_go(self, request_id: str) -> None:
        del self._kept[request_id]
        self._gone.append(request_id)
        self.wake()
