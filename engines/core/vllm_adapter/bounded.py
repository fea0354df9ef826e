"""A bound on the KV that one session keeps: its last W tokens, and the first S in front (Metronome section 5.4).

vLLM's sliding window does the work; its own registry of KV specs lets it keep whole blocks at the front too (Metronome
specification 2.4). The window covers W tokens, the query included: keys k > t - W, where the paper writes [t - W, t].
Blocks leave it when their session is scheduled next, not while it waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_utils import KVCacheBlock, resolve_block_hashes
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager, register_all_kvcache_specs
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, KVCacheSpec, SlidingWindowSpec
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from engines.core.stage import AttentionWindow
from engines.core.vllm_adapter.releases import groups_of_one_page_size


@dataclass(frozen=True, kw_only=True)
class SinkWindowSpec(SlidingWindowSpec):
    """A sliding window whose first `sinks` tokens stay as well, in whole blocks."""

    sinks: int

    @property
    def sink_blocks(self) -> int:
        return -(-self.sinks // self.block_size)

    def max_admission_blocks_per_request(self, max_in_flight_tokens: int, max_model_len: int) -> int:
        """The most blocks that one request holds; vLLM sizes its pool by this and admits by it."""
        return super().max_admission_blocks_per_request(max_in_flight_tokens, max_model_len) + self.sink_blocks

    def is_uniform_with_collection(self, kv_cache_specs: dict[str, KVCacheSpec]) -> bool:
        return super().is_uniform_with_collection(kv_cache_specs) and all(
            isinstance(spec, SinkWindowSpec) and spec.sinks == self.sinks for spec in kv_cache_specs.values()
        )


class SinkWindowManager(SlidingWindowManager):
    """vLLM's block tables of sliding windows, in which the first `sink_blocks` never become null."""

    def __init__(self, kv_cache_spec: SinkWindowSpec, **kwargs: Any) -> None:
        super().__init__(kv_cache_spec, **kwargs)
        self.sink_blocks = kv_cache_spec.sink_blocks

    def _remove_blocks_in_range(self, request_id: str, first_block: int, last_block: int) -> None:
        super()._remove_blocks_in_range(request_id, max(first_block, self.sink_blocks), last_block)

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[KVCacheBlock],
        total_computed_tokens: int,
        *args: Any,
        **kwargs: Any,
    ) -> int:
        """Count vLLM's blocks and the sinks: of a prefix hit, as the window alone would leave them in place, and of KV
        from elsewhere, as it would have no blocks for them."""
        blocks = super().get_num_blocks_to_allocate(
            request_id, num_tokens, new_computed_blocks, total_computed_tokens, *args, **kwargs
        )
        if not self.req_to_blocks.get(request_id):
            blocks += max(0, self._sinks_behind(total_computed_tokens) - len(new_computed_blocks))
        if new_computed_blocks:
            pinned = self._pinned(new_computed_blocks, total_computed_tokens)
            blocks += self._get_num_evictable_blocks(pinned)
        return blocks

    def add_local_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[KVCacheBlock],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        pinned = self._pinned(new_computed_blocks, num_local_computed_tokens)
        super().add_local_computed_blocks(
            request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens
        )
        if pinned:
            self.block_pool.touch(pinned)
            self.req_to_blocks[request_id][: len(pinned)] = pinned

    def allocate_external_computed_blocks(
        self,
        request_id: str,
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Allocate vLLM's blocks and blocks for the sinks, whose KV comes from elsewhere too."""
        super().allocate_external_computed_blocks(
            request_id, num_local_computed_tokens, num_external_computed_tokens, *args, **kwargs
        )
        blocks = self.req_to_blocks[request_id]
        behind = self._sinks_behind(num_local_computed_tokens + num_external_computed_tokens)
        missing = [place for place in range(behind) if blocks[place].is_null]
        for place, block in zip(missing, self.block_pool.get_new_blocks(len(missing)), strict=True):
            blocks[place] = block

    def _pinned(self, hit: Sequence[KVCacheBlock], computed_tokens: int) -> Sequence[KVCacheBlock]:
        return hit[: self._sinks_behind(computed_tokens)]

    def _sinks_behind(self, computed_tokens: int) -> int:
        return min(self.sink_blocks, self.get_num_skipped_tokens(computed_tokens) // self.block_size)

    @classmethod
    def find_longest_cache_hit(
        cls,
        block_hashes: Any,
        max_length: int,
        kv_cache_group_ids: list[int],
        block_pool: Any,
        kv_cache_spec: KVCacheSpec,
        drop_eagle_block: bool,
        alignment_tokens: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[tuple[list[KVCacheBlock], ...], int]:
        """Find a hit. It needs the sinks too; without them it is a miss, as every later query would see a gap."""
        assert isinstance(kv_cache_spec, SinkWindowSpec)
        hit, length = super().find_longest_cache_hit(
            block_hashes,
            max_length,
            kv_cache_group_ids,
            block_pool,
            kv_cache_spec,
            drop_eagle_block,
            alignment_tokens,
            *args,
            **kwargs,
        )
        hashes = resolve_block_hashes(
            block_hashes,
            block_pool.hash_block_size,
            kv_cache_spec.block_size,
            supports_fine_grained_hash_lookup=cls.supports_fine_grained_hash_lookup,
            alignment_tokens=alignment_tokens,
        )
        for i in range(min(kv_cache_spec.sink_blocks, len(hit[0]))):
            cached = block_pool.get_cached_block(hashes[i], kv_cache_group_ids)
            if cached is None:
                return tuple([] for _ in kv_cache_group_ids), 0
            for blocks, block in zip(hit, cached, strict=True):
                blocks[i] = block
        return hit, length

    @classmethod
    def reachable_block_mask(
        cls,
        start_block: int,
        end_block: int,
        alignment_tokens: int | None,
        kv_cache_spec: Any,
        *args: Any,
        **kwargs: Any,
    ) -> list[bool] | None:
        """Mark the blocks of a windowed prompt that vLLM caches: those needed for a hit at its end, including the
        sinks."""
        mask = super().reachable_block_mask(start_block, end_block, alignment_tokens, kv_cache_spec, *args, **kwargs)
        if mask is not None:
            for i in range(start_block, min(end_block, kv_cache_spec.sink_blocks)):
                mask[i - start_block] = True
        return mask


def register(config: VllmConfig) -> None:
    """Make `SinkWindowSpec` known to vLLM. Its own specs come first: it enters them only into an empty registry."""
    register_all_kvcache_specs(config)
    KVCacheSpecRegistry.register(SinkWindowSpec, SinkWindowManager, uniform_type_base_spec=SinkWindowSpec)


def kv_spec(
    config: VllmConfig,
    window: AttentionWindow | None,
    *,
    block_size: int,
    num_kv_heads: int,
    head_size: int,
    dtype: torch.dtype,
) -> KVCacheSpec:
    """Return the KV that each layer keeps: everything, a window of the newest tokens, or that window and its sinks."""
    shape: dict[str, Any] = {
        "block_size": block_size,
        "num_kv_heads": num_kv_heads,
        "head_size": head_size,
        "dtype": dtype,
    }
    if window is None:
        return FullAttentionSpec(**shape)
    if not window.sinks:
        return SlidingWindowSpec(**shape, sliding_window=window.tokens)
    register(config)
    return SinkWindowSpec(**shape, sliding_window=window.tokens, sinks=window.sinks)


def kv_groups(config: VllmConfig, layers: int, window: AttentionWindow | None, **shape: Any) -> list[KVCacheGroupSpec]:
    """Return vLLM's groups of layers: each has its own block tables over one pool, and each block belongs to one group.

    The other arguments are `kv_spec`'s. The first group keeps everything, if any does.
    """
    bounded, names = kv_spec(config, window, **shape), [f"layers.{layer}" for layer in range(layers)]
    if window is None or window.layers is None:
        return [KVCacheGroupSpec(names, bounded)]
    full = kv_spec(config, None, **shape)
    specs = {name: bounded if layer in window.layers else full for layer, name in enumerate(names)}
    return groups_of_one_page_size(dict(sorted(specs.items(), key=lambda item: item[1] is bounded)))
