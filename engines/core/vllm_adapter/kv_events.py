"""vLLM's KV events (BlockStored, BlockRemoved, AllBlocksCleared) of one scheduler, taken within the process."""

from vllm.distributed.kv_events import (
    MEDIUM_GPU,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventPublisher,
)
from vllm.v1.core.sched.scheduler import Scheduler

from engines.core.prefix_index import PrefixIndex


class _IntoIndex(EventPublisher):
    """Enters into an index what others would send over a socket; vLLM hands it over at the end of a step."""

    def __init__(self, index: PrefixIndex) -> None:
        super().__init__()
        self._index = index

    def publish(self, events: EventBatch) -> None:
        for event in events.events:
            if isinstance(event, AllBlocksCleared):
                self._index.clear()
            elif event.medium != MEDIUM_GPU:
                continue  # what an offload connector keeps on the host
            elif isinstance(event, BlockStored):
                self._index.stored(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                self._index.removed(event.block_hashes)

    def shutdown(self) -> None: ...


def follow(scheduler: Scheduler) -> PrefixIndex:
    """An index of what is in the scheduler's prefix cache from now on; it must have served nothing yet."""
    index = PrefixIndex(scheduler.kv_cache_manager.block_pool.num_gpu_blocks)
    scheduler.kv_cache_manager.block_pool.enable_kv_cache_events = True
    scheduler.kv_event_publisher = _IntoIndex(index)
    return index
