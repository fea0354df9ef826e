"""vLLM's own configuration and scheduler for one stage, from our description of its decoder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.structured_output import StructuredOutputManager

from engines.core.stage import AttentionWindow, Stage
from engines.core.vllm_adapter.bounded import kv_groups
from engines.core.vllm_adapter.hand_over import ROLE
from engines.core.vllm_adapter.offload import HOST_BYTES, use_host_memory
from engines.models import Decoder
from engines.models.folder import decoder_config, model_folder
from engines.models.omni import ARCHITECTURE, omni_folder
from engines.models.vision import ARCHITECTURE as VISION_ARCHITECTURE
from engines.models.vision import vision_folder

RANDOM_WEIGHTS = "rehearsal_random"
"""Load format of weights that give varied tokens; vLLM's `dummy` (all within 1e-3, one seed) repeats a single one."""

AnyScheduler = TypeVar("AnyScheduler", bound=Scheduler)


DTYPES = {2: torch.bfloat16, 4: torch.float32}
"""dtypes by bytes of a number."""


@cache
def _describe(decoder: Decoder, max_model_len: int) -> str:
    """Return the folder with the config.json from which vLLM makes its configuration (no weights, no tokenizer)."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"] if decoder.experts else ["LlamaForCausalLM"],
        "model_type": "qwen3_moe" if decoder.experts else "llama",
        **decoder_config(decoder, max_model_len),
        "intermediate_size": decoder.ffn or decoder.shared_ffn or decoder.expert_ffn,
        "torch_dtype": str(DTYPES[decoder.dtype_bytes]).removeprefix("torch."),
    }
    if decoder.experts:
        config |= {
            "num_experts": decoder.experts,
            "num_experts_per_tok": decoder.experts_per_token,
            "moe_intermediate_size": decoder.expert_ffn,
        }
    return model_folder({"config.json": config})


def _source(stage: Stage, real: bool) -> dict[str, Any]:
    """Return vLLM's arguments for the stage's model. It has an audio encoder only if it is to hear."""
    hears = stage.decoder.audio_encoder is not None
    if real and hears:
        import_module("engines.core.vllm_adapter.audio_input")  # makes the thinker known to vLLM
        return {
            "model": stage.checkpoint or omni_folder(stage.decoder, stage.max_model_len),
            "hf_overrides": {"architectures": [ARCHITECTURE]},
            "limit_mm_per_prompt": {"image": 0, "video": 0},
            "mm_processor_cache_gb": 0,  # it sends sound heard before without its data, to a receiver we have not
        }
    if real and stage.decoder.vision_encoder is not None:
        import_module("engines.core.vllm_adapter.image_input")
        return {
            "model": stage.checkpoint or vision_folder(stage.decoder, stage.max_model_len),
            "hf_overrides": {"architectures": [VISION_ARCHITECTURE]},
            "limit_mm_per_prompt": {"video": 0},
            "mm_processor_cache_gb": 0,
        }
    described = stage.checkpoint if not hears else None  # else vLLM would ask for a vision model's inputs
    model = described or _describe(stage.decoder, stage.max_model_len)
    return {"model": model, "skip_tokenizer_init": True}


def _kv_shape(decoder: Decoder) -> dict[str, int]:
    """Return heads and their size as vLLM counts a layer's KV. A compressed vector counts as one head of half its size,
    for K and V alike: the bytes are the same, and vLLM manages the blocks alike."""
    if decoder.mla is not None:
        return {"num_kv_heads": 1, "head_size": (decoder.mla.kv_rank + decoder.mla.rope) // 2}
    return {"num_kv_heads": decoder.kv_heads, "head_size": decoder.head_dim}


def engine_arguments(stage: Stage, real: bool = False) -> dict[str, Any]:
    """Return vLLM's engine arguments for one stage, with synchronous scheduling; `real`: for loading and running it."""
    pool: dict[str, Any] = {}
    if real:
        size = stage.kv_blocks * stage.block_size * stage.decoder.kv_bytes_per_token
        pool = {"num_gpu_blocks_override": stage.kv_blocks, "kv_cache_memory_bytes": size}
    return {
        **_source(stage, real),
        "load_format": "auto" if stage.checkpoint else RANDOM_WEIGHTS if real else "dummy",
        "dtype": str(DTYPES[stage.decoder.dtype_bytes]).removeprefix("torch."),
        "seed": 0,
        **pool,
        "enforce_eager": True,
        "max_model_len": stage.max_model_len,
        "max_num_seqs": stage.max_num_seqs,
        "max_num_batched_tokens": stage.max_num_batched_tokens,
        "enable_prefix_caching": stage.prefix_caching,
        "block_size": stage.block_size,
        "async_scheduling": False,
        "disable_log_stats": True,
        **({"scheduling_policy": stage.order} if stage.order != "fcfs" else {}),
        **({"scheduler_reserve_full_isl": False} if stage.admit == "chunk" else {}),
    }


@contextmanager
def inspecting_here() -> Iterator[None]:
    """Let vLLM's registry inspect the class of a model in this process. By default a child process imports vLLM again
    for each class that the user's cache lacks, to keep CUDA out of the parent; vLLM's CPU build has no CUDA."""
    usual: Callable[[Callable[[], Any]], Any] | None = getattr(registry, "_run_in_subprocess", None)
    if usual is None or not current_platform.is_cpu():
        yield
        return
    registry._run_in_subprocess = lambda inspect: inspect()
    try:
        yield
    finally:
        registry._run_in_subprocess = usual


def make_config(stage: Stage, real: bool = False) -> VllmConfig:
    """Return vLLM's own configuration for one stage, from `engine_arguments`, and its scheduler's host memory or
    role."""
    arguments = EngineArgs(**engine_arguments(stage, real))
    with nullcontext() if real else inspecting_here():
        config = arguments.create_engine_config()
    if stage.host_kv_gb:
        config.additional_config = {HOST_BYTES: int(stage.host_kv_gb * 1e9)}
    if stage.role is not None:
        if stage.host_kv_gb:
            raise ValueError("a replica that hands KV over, or takes it, keeps none in host memory")
        config.additional_config = {ROLE: stage.role}
    window = stage.extension(AttentionWindow)
    if real and window is not None and window.layers is not None:
        config.cache_config.num_gpu_blocks_override = pool_blocks(stage, layer_groups(config, stage))
    return config


def layer_groups(config: VllmConfig, stage: Stage) -> list[KVCacheGroupSpec]:
    """Return the KV that each layer keeps, by groups of layers."""
    decoder = stage.decoder
    return kv_groups(
        config,
        decoder.layers,
        stage.extension(AttentionWindow),
        block_size=stage.block_size,
        dtype=DTYPES[decoder.dtype_bytes],
        **_kv_shape(decoder),
    )


def pool_blocks(stage: Stage, groups: list[KVCacheGroupSpec]) -> int:
    """Return the blocks of the stage's pool: more than its `kv_blocks`, which span all layers, if blocks belong to
    groups of layers."""
    return stage.kv_blocks * stage.decoder.layers // max(len(group.layer_names) for group in groups)


def make_scheduler(stage: Stage, cls: type[AnyScheduler]) -> AnyScheduler:
    """Return a scheduler for one replica of `stage` with its own KV pool, and its own host memory if the stage has any.

    `cls`: stock `Scheduler` or a subclass.
    """
    config = make_config(stage)
    use_host_memory(config)
    window = stage.extension(AttentionWindow)
    if window is not None and window.sinks and stage.host_kv_gb:
        raise ValueError("KV in host memory does not know sinks: what comes back would lack them")
    groups = layer_groups(config, stage)
    blocks = pool_blocks(stage, groups)
    config.cache_config.num_gpu_blocks = blocks
    return cls(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=config.cache_config.prefix_cache_retention_interval,
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=stage.block_size,
        hash_block_size=stage.block_size,
        log_stats=False,
    )
