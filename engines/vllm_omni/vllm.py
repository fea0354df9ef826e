"""The baseline inside stock vLLM, which then takes live signals: `--scheduler-cls engines.vllm_omni.vllm.Scheduler`."""

from engines.core.vllm_adapter import serving


class Scheduler(serving.Scheduler):
    """Stock order, with synchronous scheduling."""

    engine = "vllm_omni"


class AsyncScheduler(serving.AsyncScheduler):
    """Stock order, with asynchronous scheduling."""

    engine = "vllm_omni"
