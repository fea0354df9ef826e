"""One stage of a deployment: a decoder, the GPUs of its replicas, and vLLM's limits."""

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, TypeVar

from engines.models import Decoder

Extension = TypeVar("Extension")

ENTRY = "entry"
"""Role of the stage that requests come to first, whatever its name; later stages have roles by their names."""


@dataclass(frozen=True)
class Stage:
    """One stage of a deployment: its decoder, the GPUs of its replicas and vLLM's limits.

    `gpus`: for each replica the indices of the GPUs that it is split over. `max_tokens`: the longest output of one
    reply; `max_model_len`: prompt and output of one request together; `kv_blocks`: the KV pool of one replica, the null
    block included. `block_size`: tokens per KV block, 16 as in the papers; vLLM's CPU attention wants a multiple of 32.
    `host_kv_gb`: host memory of one replica (GB) to which engines that offload copy its KV; 0: none. `checkpoint`:
    folder with real weights; None: random ones. `modelled`: no network that vLLM could run, so that every device models
    it, and it keeps no KV. `order`: vLLM's own policy. `admit`: a waiting request is admitted when its whole prompt
    fits into the pool (vLLM's default), or when its first chunk does. `async_scheduling`: steps are planned while the
    one before runs (vLLM's default on a GPU): arrivals wait for one step more, and only part of the host's time shows
    between steps (modelled devices). `roles`: replicas by role, where they differ (prefill, decode). `of_role`: the
    fields in which a role differs from the stage; `role`: the role that this stage describes. `extensions`: objects
    that mechanisms attach to it, one per type; `extension` finds them. This module knows no mechanism.
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
    modelled: bool = False
    order: Literal["fcfs", "priority"] = "fcfs"
    admit: Literal["prompt", "chunk"] = "prompt"
    async_scheduling: bool = False
    roles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    of_role: dict[str, dict[str, Any]] = field(default_factory=dict)
    role: str | None = None
    extensions: tuple[object, ...] = ()

    def extension(self, kind: type[Extension]) -> Extension | None:
        """Return the extension of this type that a mechanism has attached; None without one."""
        return next((extension for extension in self.extensions if type(extension) is kind), None)

    def extended(self, *extensions: object) -> "Stage":
        """Return the stage with these extensions; each replaces one of its type."""
        return replace(self, extensions=_extended(self.extensions, extensions))

    @property
    def split(self) -> int:
        """GPUs of one replica, between which its weights and KV are divided (tensor parallelism)."""
        first = 0 if self.role is None else self.roles[self.role][0]
        return len(self.gpus[first])

    def divided(self, roles: dict[str, int], in_place: bool = False) -> "Stage":
        """Return the stage with these numbers of replicas by role, on consecutive GPUs, or `in_place` on its own
        GPUs."""
        gpus, starts = self.split, accumulate(roles.values(), initial=0)
        ranges = {role: tuple(range(first, first + roles[role])) for role, first in zip(roles, starts, strict=False)}
        if in_place:
            return replace(self, roles=ranges)
        replicas = range(sum(roles.values()))
        return replace(self, gpus=tuple(tuple(range(i * gpus, (i + 1) * gpus)) for i in replicas), roles=ranges)

    def as_role(self, role: str) -> "Stage":
        """Return the stage as its replicas of this role have it. A request comes to a decode replica with all of its
        KV, so the prefix cache is not searched there."""
        caching, changes = self.prefix_caching and role != "decode", dict(self.of_role.get(role, {}))
        extensions = changes.pop("extensions", ())
        return replace(self, role=role, prefix_caching=caching, **changes).extended(*extensions)

    def with_role(self, role: str, *extensions: object, **fields: Any) -> "Stage":
        """Return the stage with these fields and extensions for the replicas of this role."""
        changes = self.of_role.get(role, {}) | fields
        if extensions:
            changes["extensions"] = _extended(changes.get("extensions", ()), extensions)
        return replace(self, of_role=self.of_role | {role: changes})

    @property
    def block_bytes(self) -> int:
        """Bytes of K and V of one block over all layers."""
        return self.block_size * self.decoder.kv_bytes_per_token

    @property
    def real_bytes(self) -> int:
        """Bytes of weights and KV pool of one replica."""
        return self.decoder.weight_bytes + self.kv_blocks * self.block_bytes


def _extended(extensions: tuple[object, ...], added: tuple[object, ...]) -> tuple[object, ...]:
    return tuple({type(extension): extension for extension in (*extensions, *added)}.values())


@dataclass(frozen=True)
class HostCopies:
    """Times of copies to and from host memory: extends a stage (`Stage.extension`) that has host memory. The defaults
    are vLLM's.

    `stores`: as blocks are computed, in parallel with the steps; or only when a request is preempted, which the next
    step waits for (swapping). `loads`: in parallel with the steps, or before the next one begins. `from_priority`:
    requests of this priority or a less urgent one are stored; None: all.
    """

    stores: Literal["computed", "preempted"] = "computed"
    loads: Literal["beside", "before"] = "beside"
    from_priority: int | None = None


@dataclass(frozen=True)
class Safepoints:
    """Extends a stage (`Stage.extension`) whose steps can be interrupted in front of every `layers` layers; without it,
    in front of every layer. `seconds`: the cost of each safepoint to the step."""

    layers: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class AttentionWindow:
    """Extends a stage (`Stage.extension`) whose tokens see the `tokens` newest of their context, themselves included,
    and the first `sinks`. `layers`: numbers of the layers with the window, the others see all; None: all layers."""

    tokens: int
    sinks: int = 0
    layers: tuple[int, ...] | None = None

    @property
    def reach(self) -> int:
        """Tokens of its context that a token sees at most."""
        return self.tokens + self.sinks


def reach(stage: Stage) -> int | None:
    """Tokens of its context that a token sees at most; None: all."""
    window = stage.extension(AttentionWindow)
    return None if window is None else window.reach


def windowed_share(stage: Stage) -> float:
    """Share of the layers in which `reach` holds; 1 where it holds in all, or nowhere."""
    window = stage.extension(AttentionWindow)
    return 1.0 if window is None or window.layers is None else len(window.layers) / stage.decoder.layers
