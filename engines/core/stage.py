"""One stage of a deployment as the kernel sees it: a decoder, the GPUs of its replicas, and vLLM's limits."""

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

from rehearsal.engines.devices.hardware import Gpu
from rehearsal.engines.models import Decoder

ACTIVATION_RESERVE_BYTES = 4e9
"""Device memory kept for activations and graphs beside weights and KV; vLLM profiles this, we assume it."""


@dataclass(frozen=True)
class HostCopies:
    """When KV goes to host memory and comes back.

    `stores`: as blocks are computed, beside the steps; or only when a request is preempted, which the next step waits
    for (swapping). `loads`: beside the steps, or before the next one begins. `from_priority`: requests of this priority
    or a less urgent one are stored; None: all.
    """

    stores: Literal["computed", "preempted"] = "computed"
    loads: Literal["beside", "before"] = "beside"
    from_priority: int | None = None


@dataclass(frozen=True)
class Safepoints:
    """Where a step can be interrupted: in front of every `layers` layers. `seconds`: what each costs the step."""

    layers: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Stage:
    """One stage of a deployment: its decoder, the GPUs of its replicas and vLLM's limits.

    `gpus`: for each replica the indices of the GPUs that it is split over. `max_tokens`: the longest output of one
    reply; `max_model_len`: prompt and output of one request together; `kv_blocks`: the KV pool of one replica, the
    null block included. `block_size`: tokens per KV block, 16 as in the papers;
    vLLM's CPU attention wants a multiple of 32. `host_kv_gb`: host memory of one replica (GB) to which engines that
    offload copy its KV; 0: none. `checkpoint`: folder with real weights; None: random ones. `window`: tokens behind
    the newest, itself included, whose KV stays in the pool; None: all. `sinks`: first tokens whose KV stays as well.
    `windowed_layers`: numbers of the layers of which that is said, the others keep all; None: all layers.
    `modelled`: no network that vLLM could run, so that every device models it, and it keeps no KV. `order`: vLLM's own
    policy. `roles`: replicas by what they do, where those of one stage do different things (prefill, decode).
    `of_role`: in which fields those of a role differ from the stage; `role`: of whose replicas this tells.
    `lockstep`: the replicas step together, and divide the experts among them. `step_time`: coefficients of its steps'
    seconds (`devices.step_time`), which take the place of the roofline, all of them times `step_scale`.
    `sm_share`: share of its GPU's SMs, where several stages run at once on it; None: steps run one after the other.
    `vision_slots`: layers of the vision encoder that are on the GPU at once, the others wait in host memory; None: all.
    `async_scheduling`: steps are planned while the one before runs (vLLM's default on a GPU), so that what comes
    meanwhile waits for one step more, and of the host's time only a part shows between steps (modelled devices).
    `host_copies`, `safepoints`, `admit`: as a system chooses; a waiting request is let in when its whole prompt fits
    into the pool (vLLM's default), or when its first chunk does.
    """

    name: str
    decoder: Decoder
    gpus: tuple[tuple[int, ...], ...]
    memory_share: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    max_tokens: int
    prefix_caching: bool
    block_size: int = 16
    kv_blocks: int = 0
    host_kv_gb: float = 0.0
    checkpoint: str | None = None
    window: int | None = None
    sinks: int = 0
    windowed_layers: tuple[int, ...] | None = None
    modelled: bool = False
    sm_share: float | None = None
    vision_slots: int | None = None
    step_time: dict[str, float] | None = None
    step_scale: float = 1.0
    lockstep: bool = False
    async_scheduling: bool = False
    order: Literal["fcfs", "priority"] = "fcfs"
    roles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    of_role: dict[str, dict[str, Any]] = field(default_factory=dict)
    role: str | None = None
    host_copies: HostCopies = HostCopies()
    safepoints: Safepoints = Safepoints()
    admit: Literal["prompt", "chunk"] = "prompt"

    @property
    def reach(self) -> int | None:
        """Tokens of its context that a token sees at most; None: all."""
        return None if self.window is None else self.window + self.sinks

    @property
    def windowed_share(self) -> float:
        """Share of the layers in which `reach` holds; 1 where it holds in all, or nowhere."""
        return 1.0 if self.windowed_layers is None else len(self.windowed_layers) / self.decoder.layers

    @property
    def split(self) -> int:
        """GPUs of one replica, between which its weights and KV are divided (tensor parallelism)."""
        first = 0 if self.role is None else self.roles[self.role][0]
        return len(self.gpus[first])

    def divided(self, roles: dict[str, int], in_place: bool = False) -> "Stage":
        """The same with so many replicas of each role, on consecutive GPUs, or `in_place` on those that it has."""
        gpus, starts = self.split, accumulate(roles.values(), initial=0)
        ranges = {
            role: tuple(range(first, first + roles[role])) for role, first in zip(roles, starts, strict=False)
        }
        if in_place:
            return replace(self, roles=ranges)
        replicas = range(sum(roles.values()))
        return replace(
            self, gpus=tuple(tuple(range(i * gpus, (i + 1) * gpus)) for i in replicas), roles=ranges
        )

    def as_role(self, role: str) -> "Stage":
        """The stage as its replicas of this role have it. What comes to a decode replica comes with all of its KV, so
        that none is looked for there."""
        caching = self.prefix_caching and role != "decode"
        return replace(self, role=role, prefix_caching=caching, **self.of_role.get(role, {}))

    @property
    def block_bytes(self) -> int:
        """Bytes of K and V of one block over all layers."""
        return self.block_size * self.decoder.kv_bytes_per_token

    @property
    def real_bytes(self) -> int:
        """Bytes of weights and KV pool of one replica."""
        return self.decoder.weight_bytes + self.kv_blocks * self.block_bytes

    def with_pool(self, gpu: Gpu, blocks: int | None) -> "Stage":
        """The stage with a KV pool of `blocks`, by default as the deployment says, or what the GPU's memory leaves
        after the weights.

        A pool without prefix caching is never larger than its seats can use, and no request may be longer than the
        pool: vLLM would not start.
        """
        if self.roles and self.role is None:
            sized = {role: self.as_role(role).with_pool(gpu, blocks) for role in self.roles}
            of_role = {
                role: self.of_role.get(role, {})
                | {"kv_blocks": each.kv_blocks, "max_model_len": each.max_model_len}
                for role, each in sized.items()
            }
            length = min(each.max_model_len for each in sized.values())
            first = next(iter(sized.values()))
            return replace(self, of_role=of_role, kv_blocks=first.kv_blocks, max_model_len=length)
        blocks = blocks or self.kv_blocks
        if not blocks:
            each_bytes = gpu.memory_bytes * self.memory_share - ACTIVATION_RESERVE_BYTES
            dies = len(self.roles[self.role]) if self.lockstep and self.role else 1
            free_bytes = self.split * each_bytes - self.decoder.resident_bytes(self.vision_slots, dies)
            # Heads are divided between the GPUs of a replica; one vector for all of them is on each.
            copies = self.split if self.decoder.mla else 1
            blocks = int(free_bytes // (self.block_bytes * copies))
            if not self.prefix_caching:
                blocks = min(blocks, self.max_num_seqs * -(-self.max_model_len // self.block_size) + 1)
        return replace(
            self, kv_blocks=blocks, max_model_len=min(self.max_model_len, (blocks - 1) * self.block_size)
        )
