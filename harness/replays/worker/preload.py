"""Imported once by the fork server: vLLM, and the configuration caches that its first use fills.

Workers are forked from here with all of that in memory, and with no engine, request or thread of an engine: a
fresh process is ready in milliseconds instead of ten seconds.
"""

import contextlib
import gc
import os
import sys
from pathlib import Path
from typing import Any

from harness.replays.worker.isolation import send_output_to


def warm() -> None:
    """Load vLLM, and make a scheduler for each stage of the default deployment once."""
    # vLLM and transformers import these where they are installed, which takes a second; hardly a replay uses one.
    hidden: dict[str, Any] = dict.fromkeys(("sklearn", "scipy.signal", "scipy.stats"))
    no_ray: dict[str, Any] = {"ray": None}  # vLLM would import it in each worker, to ask if it is initialized
    sys.modules |= hidden | no_ray
    try:
        import harness.replays.worker.replay  # noqa: F401
        from engines.core.vllm_adapter import StageScheduler, make_scheduler
        from engines.core.vllm_adapter.block_pool import source_hash
        from engines.server import ServerParams, resolve
        from harness.experiments.identity import metrics_hash

        for stage in resolve(ServerParams.model_validate({})).stages.values():
            make_scheduler(stage, StageScheduler)
        source_hash()
        metrics_hash()  # by which each worker keeps its metrics
    finally:
        for name in hidden:
            del sys.modules[name]


# Threads do not survive a fork, so none may start here.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What libraries say while they load, and at their end about frozen objects, concerns no point.
send_output_to(Path(os.devnull))
with contextlib.suppress(Exception):  # every worker meets the same error again, and has it in its log
    warm()
gc.collect()
gc.freeze()  # workers share what is loaded by now; no collection touches, and so copies, its pages
