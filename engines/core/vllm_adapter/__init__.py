"""Every name of vLLM that Rehearsal uses, in one package; tests/engines/test_vllm_adapter.py checks each of them.

vLLM's own `Scheduler`, KV manager and executor do the work: subclassed and called, never re-implemented.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
# One thread without binding: several stages share the process, and results do not depend on the number of cores.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

if TYPE_CHECKING:
    from engines.core.vllm_adapter.clock import use_clock
    from engines.core.vllm_adapter.configuration import engine_arguments, make_config, make_scheduler
    from engines.core.vllm_adapter.hand_over import handed_over
    from engines.core.vllm_adapter.kv_scheduler import follow
    from engines.core.vllm_adapter.offload import HostTransfers
    from engines.core.vllm_adapter.requests import make_chunk, make_request
    from engines.core.vllm_adapter.scheduler_path import SchedulerPath, dropped, finish_step, passed_over, rows_of
    from engines.core.vllm_adapter.scheduling import RequestStatus, StageScheduler

__all__ = [
    "HostTransfers",
    "RequestStatus",
    "SchedulerPath",
    "StageScheduler",
    "dropped",
    "engine_arguments",
    "finish_step",
    "follow",
    "handed_over",
    "make_chunk",
    "make_config",
    "make_request",
    "make_scheduler",
    "passed_over",
    "rows_of",
    "use_clock",
]


def __getattr__(name: str) -> Any:
    """Load a name with its module at its first use, so that nothing waits for modules it does not need."""
    if name in __all__:
        for module in (
            "clock",
            "scheduling",
            "requests",
            "scheduler_path",
            "configuration",
            "offload",
            "hand_over",
            "kv_scheduler",
            "execution",
        ):
            value = getattr(import_module(f"{__name__}.{module}"), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
