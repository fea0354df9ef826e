"""KV that a replica hands over to another of its stage, or takes over from it."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.request import StageRequest


class HandedKv:
    """The hand-overs of one replica; see `engines.core.kv_manager.KvTraffic`.

    A prefill replica keeps its KV (`keep`) until a decode replica has it, or nobody wants it (`drop`). A decode replica
    expects a request's KV from a source (`expect`), and fetches it when vLLM has allocated its blocks. `wake`: makes
    the replica's loop look again.
    """

    next_s = None

    def __init__(self, replica: Replica, recorder: Recorder, wake: Callable[[], None]) -> None:
        assert replica.port is not None
        self.stage = replica.stage.name
        self.scheduler = replica.scheduler
        self.port = replica.port
        self.fabric = replica.fabric
        self.recorder = recorder
        self.wake = wake
        self._kept: dict[str, None] = {}
        self._sources: dict[str, HandedKv] = {}
        self._gone: list[str] = []
        self._come: dict[str, int] = {}
        self._told: dict[str, int] = {}

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
        if self._gone or self._come:
            return True
        loading = self.scheduler.loading
        if not loading:
            return len(requests) > len(held)
        return any(id not in held and id not in loading for id in requests)

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
        self._told, self._come = self._come, {}
        return vllm.handed_over(gone, self._told)

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        told, self._told = self._told, {}
        for request_id, blocks in told.items():
            if request_id in requests:
                self._event("load_end", requests[request_id], now, blocks)

    def started(self, row: Row, request: StageRequest, now: float) -> None: ...

    def forget(self, request_id: str) -> None:
        unfetched, self.scheduler.hand_overs.unfetched = self.scheduler.hand_overs.unfetched, []
        for each in unfetched:
            self._sources.pop(each).drop(each)

    def _arrived(self, request_id: str, blocks: int) -> None:
        self._come[request_id] = blocks
        self.wake()
        self._sources.pop(request_id)._let_go(request_id)

    def _let_go(self, request_id: str) -> None:
        del self._kept[request_id]
        self._gone.append(request_id)
        self.wake()

    def _event(self, kind: str, request: StageRequest, now: float, blocks: float = math.nan) -> None:
        self.recorder.event(now, kind, request.session, request.turn, self.stage, blocks)
