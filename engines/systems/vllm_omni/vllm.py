"""The baseline inside stock vLLM, with live signals: `--scheduler-cls engines.systems.vllm_omni.vllm.Scheduler`."""

from engines.stock import scheduler


class Scheduler(scheduler.Scheduler):
    """Stock order, with synchronous scheduling."""

    engine = "vllm_omni"


class AsyncScheduler(scheduler.AsyncScheduler):
    """Stock order, with asynchronous scheduling."""

    engine = "vllm_omni"
