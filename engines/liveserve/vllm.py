"""LiveServe inside stock vLLM: `--scheduler-cls engines.liveserve.vllm.Scheduler`, or `AsyncScheduler`."""

from engines.core.vllm_adapter import serving


class Scheduler(serving.Scheduler):
    """The urgency scheduler, with synchronous scheduling."""

    engine = "liveserve"


class AsyncScheduler(serving.AsyncScheduler):
    """The urgency scheduler, with asynchronous scheduling."""

    engine = "liveserve"
