"""One replica of a stage before an engine drives it: vLLM's scheduler over its KV pool, and its device."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.device import Device
from engines.core.prefix_index import PrefixIndex
from engines.core.stage import Stage


@dataclass(eq=False)
class Replica:
    """Implements `engines.core.router.Target`.

    `transfers`: to and from the host's memory; None without any. `executor`: the real device, if any. `gpu`: its
    modelled GPU: compute queue and copy engines (`devices.virtual`). `port`, `fabric`: the way of KV to and from other
    replicas (`devices.fabric`); None without any.
    """

    stage: Stage
    index: int
    scheduler: "vllm.StageScheduler"
    device: Device
    transfers: "vllm.HostTransfers | None" = None
    executor: Any = None
    gpu: Any = None
    port: Any = None
    fabric: Any = None

    @property
    def max_running(self) -> int:
        return self.stage.max_num_seqs

    @property
    def max_tokens(self) -> int:
        return self.stage.max_num_batched_tokens

    @property
    def block_size(self) -> int:
        return self.stage.block_size

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        return self.scheduler.cached_prefix(prompt, features)

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[Hashable]:
        return self.scheduler.event_hashes(prompt, features) if self.stage.prefix_caching else ()

    def prefix_index(self) -> PrefixIndex:
        return vllm.follow(self.scheduler)
