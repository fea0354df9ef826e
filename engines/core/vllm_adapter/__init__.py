"""Every name of vLLM that Rehearsal touches, in one package; tests/engines/test_vllm_adapter.py checks each of them.

vLLM 0.32's own ``Scheduler``, KV manager and executor do the work: subclassed and called, never re-implemented.
"""

import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from engines.core.vllm_adapter.configuration import make_config, make_scheduler
from engines.core.vllm_adapter.scheduling import (
    CLOCK_READERS,
    RequestStatus,
    Row,
    StageScheduler,
    finish_step,
    make_request,
    rows_of,
    use_clock,
)

__all__ = [
    "CLOCK_READERS",
    "RequestStatus",
    "Row",
    "StageScheduler",
    "finish_step",
    "make_config",
    "make_request",
    "make_scheduler",
    "rows_of",
    "use_clock",
]
