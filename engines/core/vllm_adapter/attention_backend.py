"""Sinks and window inside vLLM's own model: a backend for the layers' attention and their KV spec.

A window alone is vLLM's: its layers take it from the cache configuration. With sinks, the layers of a loaded model get
the backend below before vLLM asks them for their KV spec. K and V lie in the cache as they are, K before V.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

import torch
from vllm.config import VllmConfig, get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
)
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.kv_cache_interface import AttentionSpec, SlidingWindowSpec

from engines.core.stage import AttentionWindow
from engines.core.vllm_adapter.attention.cpu import Gather, attend, plan, store
from engines.core.vllm_adapter.bounded import SinkWindowSpec, register

SINKS, WINDOWED = "rehearsal_sinks", "rehearsal_windowed_layers"
"""Keys of vLLM's `additional_config`: tokens pinned at the front of every request; window and layers that have it."""


@dataclass
class GatherMetadata(AttentionMetadata):
    """One step on a CPU: `tokens` queries and the tokens that they read."""

    tokens: int
    gathers: Sequence[Gather]


@dataclass
class KernelMetadata(AttentionMetadata):
    """One step on a GPU, as `triton_kernel.paged_attention` takes it."""

    tokens: int
    arguments: dict[str, Any]


class _Builder(AttentionMetadataBuilder):
    kv_cache_spec: SinkWindowSpec

    def __init__(
        self, kv_cache_spec: SinkWindowSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)


class GatherBuilder(_Builder):
    """Plans a step's gathers, once for all layers."""

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> GatherMetadata:
        step, spec = common_attn_metadata, self.kv_cache_spec
        gathers = plan(
            step.query_start_loc_cpu.tolist(),
            step.seq_lens.tolist(),
            step.block_table_tensor,
            spec.block_size,
            spec.sliding_window,
            spec.sinks,
        )
        return GatherMetadata(step.num_actual_tokens, gathers)


class KernelBuilder(_Builder):
    """Collects a step's arguments of the kernel."""

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> KernelMetadata:
        from engines.core.vllm_adapter.attention.triton_kernel import segments_for  # Triton is not everywhere

        step, spec = common_attn_metadata, self.kv_cache_spec
        window, sinks = spec.sliding_window, spec.sinks
        arguments = {
            "table": step.block_table_tensor,
            "starts": step.query_start_loc,
            "lengths": step.seq_lens,
            "longest_query": step.max_query_len,
            "window": window,
            "sinks": sinks,
            "segments": segments_for(step.max_query_len, window, sinks, step.max_seq_len),
        }
        return KernelMetadata(step.num_actual_tokens, arguments)


class _Impl(AttentionImpl):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
    ) -> None:
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.head_size, self.scale = head_size, scale
        self.sliding_window, self.kv_cache_dtype = sliding_window, kv_cache_dtype

    def do_kv_cache_update(
        self,
        layer: torch.nn.Module,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        store(key, value, kv_cache, slot_mapping)


class GatherImpl(_Impl):
    """Attention of a layer on a CPU."""

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: GatherMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the attention, (tokens, heads, D), to `output` and return it; nothing while vLLM measures a model
        without a cache."""
        if attn_metadata is not None:
            attend(query[: attn_metadata.tokens], kv_cache, attn_metadata.gathers, self.scale, output)
        return output


class KernelImpl(_Impl):
    """Attention of a layer on a GPU."""

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: KernelMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        from engines.core.vllm_adapter.attention.triton_kernel import paged_attention

        if attn_metadata is not None:
            tokens = attn_metadata.tokens
            paged_attention(
                query=query[:tokens],
                cache=kv_cache,
                scale=self.scale,
                output=output[:tokens],
                **attn_metadata.arguments,
            )
        return output


class _WithSinks(AttentionBackend):
    """Makes a layer's windowed KV spec a spec that also pins `sinks` tokens."""

    sinks: ClassVar[int]

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        if not isinstance(spec, SlidingWindowSpec) or isinstance(spec, SinkWindowSpec):
            return spec
        return SinkWindowSpec(**{field.name: getattr(spec, field.name) for field in fields(spec)}, sinks=cls.sinks)


class GatherBackend(_WithSinks, CPUAttentionBackend):
    """The backend for CPUs, with the features of vLLM's CPU attention."""

    @staticmethod
    def get_impl_cls() -> type[GatherImpl]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return GatherImpl

    @staticmethod
    def get_builder_cls() -> type[GatherBuilder]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return GatherBuilder


class KernelBackend(_WithSinks, TritonAttentionBackend):
    """The backend for GPUs, with the features of vLLM's Triton attention."""

    @staticmethod
    def get_impl_cls() -> type[KernelImpl]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return KernelImpl

    @staticmethod
    def get_builder_cls() -> type[KernelBuilder]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return KernelBuilder


@cache
def backend_for(sinks: int, cpu: bool) -> type[_WithSinks]:
    """Return the backend of a device that pins `sinks` tokens."""
    if cpu:
        return type(GatherBackend.__name__, (GatherBackend,), {"sinks": sinks})
    return type(KernelBackend.__name__, (KernelBackend,), {"sinks": sinks})


def bounded_executor(config: VllmConfig, window: AttentionWindow | None) -> type[UniProcExecutor]:
    """Return the executor whose layers attend as `window` says; None: over all. Writes it into `config`, before its
    model is built."""
    if window is None:
        return UniProcExecutor
    assert isinstance(config.additional_config, dict)
    if window.layers is not None:
        config.additional_config[WINDOWED] = (window.tokens, window.layers)
    else:
        config.cache_config.sliding_window = window.tokens
        if not window.sinks:
            return UniProcExecutor
    config.additional_config[SINKS] = window.sinks
    return SinkWindowExecutor


class SinkWindowExecutor(UniProcExecutor):
    """vLLM's executor in this process; pins the sinks of `additional_config` in every decoder layer with a window."""

    def _init_executor(self) -> None:
        super()._init_executor()
        additional = self.vllm_config.additional_config
        assert isinstance(additional, dict)
        if WINDOWED in additional:
            give_window(self.vllm_config, *additional[WINDOWED])
        pin_sinks(self.vllm_config, additional[SINKS], current_platform.is_cpu())


def give_window(config: VllmConfig, window: int, layers: Sequence[int]) -> None:
    """Give these layers of the loaded model a window; `pin_sinks` then makes them keep to it."""
    for name, layer in get_layers_from_vllm_config(config, Attention).items():
        if extract_layer_index(name) in layers:
            layer.sliding_window = window


def pin_sinks(config: VllmConfig, sinks: int, cpu: bool) -> None:
    """Give every decoder layer of the loaded model that has a window the backend with sinks."""
    register(config)
    backend = backend_for(sinks, cpu)
    for layer in get_layers_from_vllm_config(config, Attention).values():
        if layer.attn_type != AttentionType.DECODER or layer.sliding_window is None:
            continue
        impl: Any = layer.impl
        layer.attn_backend = backend
        adopted = backend.get_impl_cls()
        assert issubclass(adopted, _Impl)
        layer.impl = adopted(
            impl.num_heads,
            impl.head_size,
            impl.scale,
            impl.num_kv_heads,
            sliding_window=layer.sliding_window,
            kv_cache_dtype=layer.kv_cache_dtype,
        )
