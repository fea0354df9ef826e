"""What served a run, from what its folder says: vLLM's log first, then the settings that it was started with."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from harness.truth.document import get, number
from harness.truth.run import Server
from harness.truth.vllm_log import DEFAULT_BLOCK
from workloads.errors import UserError

CONFIG = {
    "model": ("model", "model_name", "model_id"),
    "gpu": ("gpu", "hardware", "hw", "accelerator"),
    "tp": ("tensor_parallelism", "tensor_parallel_size", "tp"),
    "max_model_len": ("max_model_len",),
    "max_num_batched_tokens": ("max_num_batched_tokens", "mbt"),
    "max_num_seqs": ("max_num_seqs",),
    "block_size": ("block_size",),
    "gpu_memory_utilization": ("gpu_memory_utilization", "gpu_mem"),
    "prefix_caching": ("enable_prefix_caching", "prefix_caching"),
    "async_scheduling": ("async_scheduling",),
    "enforce_eager": ("enforce_eager",),
    "dtype": ("dtype",),
    "quantization": ("quantization",),
    "vllm": ("vllm_version", "vllm"),
}
"""Field of Server -> names in exp-config.yaml; the later ones are those of inference-sim's experiments.json."""
_WHOLE = {"tp", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size"}


def server_of(config: Mapping[str, Any], log: Mapping[str, Any], model: str | None, where: str) -> Server:
    """`config` and `log` may be empty; `model` is what the client asked for. UserError without any model."""
    stated = {field: _stated(config, field, names, where) for field, names in CONFIG.items()}
    found = {field: value for field, value in stated.items() if value is not None}
    found |= {field: value for field, value in log.items() if field != "model" and value is not None}
    name = found.pop("model", None) or log.get("model") or model
    if not name:
        raise UserError(
            f"{where}: no file says which model was served; add exp-config.yaml with `model: NAME`."
        )
    found.setdefault("block_size", DEFAULT_BLOCK)
    known = {field.name for field in fields(Server)}
    return Server(model=str(name), **{field: value for field, value in found.items() if field in known})


def _stated(config: Mapping[str, Any], field: str, names: tuple[str, ...], where: str) -> Any:
    if field in _WHOLE:
        value = number(config, where, *names)
        return None if value is None else int(value)
    return get(config, *names)
