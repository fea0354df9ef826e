"""KV in host memory: the scheduler's half of vLLM's own offload connector, with our own transfers.

The connector decides what is stored and loaded, keeps the host's blocks in LRU order and makes requests wait for
theirs. A modelled GPU only takes the time of a transfer; a real device copies the blocks (vLLM's own worker half wants
a GPU, and one model in a process). Each replica has its own connector, host memory and copy engines.
"""

import heapq
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any, Protocol

import torch
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import group_kernel_blocks
from vllm.v1.outputs import KVConnectorOutput

from engines.core.stage import HostCopies
from engines.core.vllm_adapter.eviction import Evictions
from engines.core.vllm_adapter.kv_scheduler import KvScheduler
from engines.core.vllm_adapter.preload import Preloads


class CopyEngine(Protocol):
    """One direction between GPU and host, first in, first out."""

    bandwidth: float

    def copy(self, size_bytes: float, not_before: float = 0.0) -> float:
        """Queue a transfer; return the time (s) at which it will have arrived."""
        ...

    def queued_s(self) -> float:
        """Seconds until the engine is free."""
        ...


HOST_BYTES = "rehearsal_host_bytes"
"""In vLLM's `additional_config`: host memory for the KV of the scheduler that is built from it."""


def use_host_memory(config: VllmConfig) -> None:
    """Let a scheduler that is built from `config` offload to the host memory it names, if any, with LRU.

    Replies are offloaded too: they come back as the next turn's history (vLLM's default stores prompts only).
    """
    additional: Any = config.additional_config
    if host_bytes := additional.get(HOST_BYTES):
        config.kv_transfer_config = KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "spec_name": "CPUOffloadingSpec",
                "cpu_bytes_to_use": host_bytes,
                "eviction_policy": "lru",
                "offload_prompt_only": False,
            },
        )


class HostMemory:
    """Host memory of a real device's replica: copies of KV blocks, made at once."""

    def __init__(self, kv_caches: Sequence[torch.Tensor], scheduler: KvScheduler) -> None:
        blocks, host_blocks = scheduler.allocatable_blocks + 1, scheduler.host_blocks
        caches = {cache.data_ptr(): group_kernel_blocks(cache, blocks) for cache in kv_caches}
        self._caches = list(caches.values())
        self.kept = [torch.empty((host_blocks, *c.shape[1:]), dtype=c.dtype) for c in self._caches]

    def load(self, host: Sequence[int], device: Sequence[int]) -> None:
        """Copy host blocks into the pool's, in this order."""
        for cache, kept in zip(self._caches, self.kept, strict=True):
            cache[torch.as_tensor(device)] = kept[torch.as_tensor(host)].to(cache.device)

    def store(self, device: Sequence[int], host: Sequence[int]) -> None:
        """Copy the pool's blocks into host blocks, in this order."""
        for cache, kept in zip(self._caches, self.kept, strict=True):
            kept[torch.as_tensor(host)] = cache[torch.as_tensor(device)].cpu()


class Loading(Protocol):
    """The scheduler of the loads, as transfers need it."""

    preloads: Preloads
    evictions: Evictions

    @property
    def offloading(self) -> Any:
        """The scheduler's half of vLLM's offload connector."""


class HostTransfers:
    """The load and store jobs of one replica under way.

    `counters`: bytes moved, by direction and purpose. `arrived_s`: by request, the arrival of the loads in the last
    result of `finished`. `memory`: the target of the copies; without one only time passes. `copies`: when blocks are
    copied.
    """

    def __init__(
        self,
        to_device: CopyEngine,
        to_host: CopyEngine,
        block_bytes: int,
        memory: HostMemory | None = None,
        copies: HostCopies = HostCopies(),
    ) -> None:
        self.to_device = to_device
        self.to_host = to_host
        self.block_bytes = block_bytes
        self.memory = memory
        self.copies = copies
        self.counters: Counter[str] = Counter()
        self.arrived_s: dict[str, float] = {}
        self._put_off: dict[int, Any] = {}
        self._queue: list[tuple[float, int]] = []
        self._done_s: dict[int, float] = {}
        self._loads: dict[int, str] = {}

    @property
    def next_s(self) -> float | None:
        """Return the end of the next transfer (s); None without one."""
        return self._queue[0][0] if self._queue else None

    def begin(self, scheduler: Loading, output: SchedulerOutput, now: float) -> tuple[float, dict[str, int]]:
        """Start the loads of a step that begins at `now`.

        Returns when the step's work can begin (it waits for stores out of blocks that it overwrites), and the blocks
        that begin to load for each request.
        """
        meta: Any = output.kv_connector_metadata
        free_s = now
        for job_id in sorted(meta.jobs_to_flush or ()):
            job = meta.store_jobs.get(job_id) or self._put_off.pop(job_id, None)
            if job is not None:
                self._store(job_id, job)
            free_s = max(free_s, self._done_s.get(job_id, now))
        loading, begin_s = {}, free_s
        for job_id, job in meta.load_jobs.items():
            blocks = len(job.dst_spec.block_ids)
            purpose = "background" if job.req_id in scheduler.preloads.ids else "foreground"
            self.counters[f"h2d_bytes_{purpose}"] += blocks * self.block_bytes
            loaded_s = self.to_device.copy(blocks * self.block_bytes, free_s)
            self._start(job_id, loaded_s)
            begin_s = max(begin_s, loaded_s)
            if self.memory is not None:
                self.memory.load(job.src_spec.block_ids, job.dst_spec.block_ids)
            self._loads[job_id] = job.req_id
            loading[job.req_id] = blocks
            scheduler.evictions.reloaded(scheduler.offloading._jobs[job_id].keys)
        return (begin_s if self.copies.loads == "before" else free_s), loading

    def end(self, output: SchedulerOutput, withdrawn: frozenset[int], running: Container[str]) -> None:
        """Store the KV that the step computed on the host, except the jobs that were `withdrawn`.

        `running`: ids of requests that have not ended. If stores are put off until a preemption, the stores of other
        requests take no time any more.
        """
        meta: Any = output.kv_connector_metadata
        for job_id, job in meta.store_jobs.items():
            if job_id in withdrawn:
                self._start(job_id, 0.0)
            elif job_id in self._done_s:
                continue
            elif self.copies.stores == "preempted":
                self._put_off[job_id] = job
            else:
                self._store(job_id, job)
        for job_id in [id for id, job in self._put_off.items() if job.req_id not in running]:
            self._copy(self._put_off.pop(job_id))
            self._start(job_id, 0.0)

    def finished(self, now: float) -> KVConnectorOutput | None:
        """Return the transfers that have ended by `now` (s), as vLLM's worker would report them; None when none has."""
        if not self._queue or self._queue[0][0] > now:
            return None
        jobs: dict[int, int] = {}
        self.arrived_s = {}  # in order: a set of strings has another order in every process
        while self._queue and self._queue[0][0] <= now:
            done_s, job_id = heapq.heappop(self._queue)
            del self._done_s[job_id]
            jobs[job_id] = 1
            if job_id in self._loads:
                self.arrived_s[self._loads.pop(job_id)] = done_s
        received: Any = self.arrived_s.keys() or None
        return KVConnectorOutput(
            finished_recving=received, kv_connector_worker_meta=OffloadingWorkerMetadata(completed_jobs=jobs)
        )

    def _store(self, job_id: int, job: Any) -> None:
        size = len(job.src_spec.block_ids) * self.block_bytes
        self.counters["d2h_bytes"] += size
        self._copy(job)
        self._start(job_id, self.to_host.copy(size))

    def _copy(self, job: Any) -> None:
        if self.memory is not None:
            self.memory.store(job.src_spec.block_ids, job.dst_spec.block_ids)

    def _start(self, job_id: int, done_s: float) -> None:
        self._done_s[job_id] = done_s
        heapq.heappush(self._queue, (done_s, job_id))
