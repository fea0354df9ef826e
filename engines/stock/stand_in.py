"""A pytest plug-in that replaces vLLM's schedulers with ours, for vLLM's own tests.

`REHEARSAL_STAND_IN` names the scheduler: `stage` for `StageScheduler` without plans, or an engine whose policy our
stock plug-in then runs. The subclasses are in place before the tests import vLLM's classes, so the tests need no
change.
"""

import os
from typing import Any

from vllm.v1.core.sched import async_scheduler, scheduler

from engines.core.vllm_adapter.scheduling import StageScheduler
from engines.stock.arguments import KEY
from engines.stock.scheduler import AsyncScheduler, Scheduler

VARIABLE = "REHEARSAL_STAND_IN"


class AsyncStageScheduler(StageScheduler, async_scheduler.AsyncScheduler):
    """A `StageScheduler` for asynchronous scheduling."""


def under(engine: str, plug_in: type[Any]) -> type[Any]:
    """Return our stock plug-in as a configuration that names `engine` makes it."""

    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        vllm_config.additional_config = {KEY: {"engine": engine}}
        plug_in.__init__(self, vllm_config, *args, **kwargs)

    return type(plug_in.__name__, (plug_in,), {"__init__": __init__})


def pytest_configure() -> None:
    name = os.environ[VARIABLE]
    if name == "stage":
        sync, asynchronous = StageScheduler, AsyncStageScheduler
    else:
        sync, asynchronous = under(name, Scheduler), under(name, AsyncScheduler)
    scheduler.Scheduler, async_scheduler.AsyncScheduler = sync, asynchronous  # type: ignore[misc]
