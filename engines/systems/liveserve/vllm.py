"""LiveServe inside stock vLLM: `--scheduler-cls engines.systems.liveserve.vllm.Scheduler`, or `AsyncScheduler`."""

from engines.stock import scheduler


class Scheduler(scheduler.Scheduler):
    """The urgency scheduler, with synchronous scheduling."""

    engine = "liveserve"


class AsyncScheduler(scheduler.AsyncScheduler):
    """The urgency scheduler, with asynchronous scheduling."""

    engine = "liveserve"
