"""What differs between the releases of vLLM that the adapter runs on, asked of what is installed: never its number.

What only one system needs is asked for when it does: a release without it serves the others.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

try:
    _groups: Any = import_module("vllm.v1.core.kv_cache_planning")
except ModuleNotFoundError:  # before planning had a module of its own
    _groups = import_module("vllm.v1.core.kv_cache_utils")
groups_of_one_page_size: Callable[..., Any] = _groups._get_kv_cache_groups_uniform_page_size
"""vLLM's groups of layers, for layers whose pages have one size."""

__all__ = ["expert_balancer", "groups_of_one_page_size", "migration_batches"]


def expert_balancer() -> Any:
    """vLLM's default policy of placing experts. ImportError in a release that has none."""
    return import_module("vllm.distributed.eplb.policy.default").DefaultEplbPolicy


def migration_batches() -> Callable[..., Any]:
    """How vLLM orders moves of experts between dies. ImportError in a release that orders none."""
    return import_module("vllm.distributed.eplb.migration_scheduler").schedule_migration_batches
