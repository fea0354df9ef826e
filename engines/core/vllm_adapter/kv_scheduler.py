"""vLLM's scheduler with queries about KV: blocks of the pool, of the host and of a request.

Modules that manage a scheduler's KV use this class; `scheduling.StageScheduler` puts it all together.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

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
from engines.core.vllm_adapter.hand_over import HandOverConnector, is_elsewhere
from engines.core.vllm_adapter.releases import SchedulerNames


class KvScheduler(SchedulerNames, Scheduler):
    """Schedules as stock vLLM does. `short_keys`: see `history.hash_function`."""

    short_keys = False

    @property
    def offloads(self) -> bool:
        """Return True if KV goes to host memory and comes back."""
        return self.connector is not None and not isinstance(self.connector, HandOverConnector)

    @property
    def host_blocks(self) -> int:
        return self.offloading.manager._num_chunks if self.offloads else 0

    @property
    def offloading(self) -> Any:
        """The scheduler's half of vLLM's offload connector."""
        connector: Any = self.connector
        return connector.connector_scheduler

    @property
    def hand_overs(self) -> HandOverConnector:
        """The scheduler's half of the connector that hands KV to other replicas, or takes theirs."""
        assert isinstance(self.connector, HandOverConnector)
        return self.connector

    def comes_from_another(self, request: Any) -> bool:
        """Return True if another replica has the request's KV; vLLM asks for it when it allocates the request's
        blocks."""
        return isinstance(self.connector, HandOverConnector) and is_elsewhere(request)

    @property
    def free_blocks(self) -> int:
        """KV blocks that can be given out now, including idle cached ones."""
        return self.kv_cache_manager.block_pool.get_num_free_blocks()

    @property
    def allocatable_blocks(self) -> int:
        """KV blocks of the pool that can ever be given out (the null block cannot)."""
        return self.kv_cache_manager.block_pool.num_gpu_blocks - 1

    @property
    def cached_blocks(self) -> int:
        """Blocks whose content is in the prefix cache."""
        return len(self.kv_cache_manager.block_pool.cached_block_hash_to_block)

    def block_ids(self, request_id: str) -> list[int]:
        """Return the KV blocks of a request in the order of its tokens; 0 for a block that its window has left
        behind."""
        return [block.block_id for block in self._blocks(request_id)]

    @cached_property
    def _blocks_of(self) -> dict[str, list[Any]]:
        return self.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks

    def _blocks(self, request_id: str) -> Sequence[Any]:
        return self._blocks_of.get(request_id, ())


class _IntoIndex(EventPublisher):
    """Enters vLLM's KV events, which come at the end of a step, into an index instead of sending them over a socket."""

    def __init__(self, index: PrefixIndex) -> None:
        super().__init__()
        self._index = index

    def publish(self, events: EventBatch) -> None:
        for event in events.events:
            if isinstance(event, AllBlocksCleared):
                self._index.clear()
            elif event.medium != MEDIUM_GPU:
                continue  # blocks that an offload connector keeps on the host
            elif isinstance(event, BlockStored):
                self._index.stored(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                self._index.removed(event.block_hashes)

    def shutdown(self) -> None: ...


def follow(scheduler: Scheduler) -> PrefixIndex:
    """Return an index of the scheduler's prefix cache that is kept up to date; the scheduler must have served nothing
    yet."""
    index = PrefixIndex(scheduler.kv_cache_manager.block_pool.num_gpu_blocks)
    scheduler.kv_cache_manager.block_pool.enable_kv_cache_events = True
    scheduler.kv_event_publisher = _IntoIndex(index)
    return index
