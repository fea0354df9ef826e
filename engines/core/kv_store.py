"""A stage replica's KV pool and its host memory, as a KV manager sees and uses them."""

from engines.core import vllm_adapter as vllm
from engines.core.kv_manager import EvictionIndex, EvictionMode


class ReplicaStore:
    """Implements `engines.core.kv_manager.KvStore` over vLLM's scheduler and the copy engines."""

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
