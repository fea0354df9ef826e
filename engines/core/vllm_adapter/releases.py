"""Differences between the releases of vLLM that the adapter runs on, found by names in the installed code.

A feature that only one system needs is looked up by that system: a release without it serves the others.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from vllm.v1.core.sched import scheduler as _scheduler

try:
    _groups: Any = import_module("vllm.v1.core.kv_cache_planning")
except ModuleNotFoundError:  # before planning had a module of its own
    _groups = import_module("vllm.v1.core.kv_cache_utils")
groups_of_one_page_size: Callable[..., Any] = _groups._get_kv_cache_groups_uniform_page_size
"""vLLM's groups of layers, for layers whose pages have one size."""


class EarlierNames:
    """Names of vLLM 0.31, added to the scheduler of 0.30: all waiting requests that cannot run are in one queue, and
    none is noted as passed over."""

    deferred_waiting: Any = frozenset()

    @property
    def kv_holding_waiting(self) -> Any:
        return vars(self)["skipped_waiting"]

    @property
    def max_num_active_reqs(self) -> int:
        return vars(self)["max_num_running_reqs"]

    @max_num_active_reqs.setter
    def max_num_active_reqs(self, slots: int) -> None:
        vars(self)["max_num_running_reqs"] = slots


class _NoNames:
    """Adds nothing: no name is missing."""


def _names() -> Any:
    methods = vars(_scheduler.Scheduler)
    promotes = [methods[name] for name in methods if name.endswith("promote_blocked_waiting_request")]
    if not promotes:
        return _NoNames
    return type("Names", (EarlierNames,), {"_handle_blocked_waiting_request": promotes[0]})


SchedulerNames: Any = _names()
"""Base class that our scheduler puts before vLLM's own, so that all releases have the same names."""

__all__ = ["SchedulerNames", "expert_balancer", "groups_of_one_page_size", "migration_batches"]


def expert_balancer() -> Any:
    """vLLM's default policy of placing experts. ImportError in a release that has none."""
    return import_module("vllm.distributed.eplb.policy.default").DefaultEplbPolicy


def migration_batches() -> Callable[..., Any]:
    """Return vLLM's ordering of moves of experts between dies. ImportError in a release without one."""
    return import_module("vllm.distributed.eplb.migration_scheduler").schedule_migration_batches
