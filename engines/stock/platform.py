"""vLLM's platform for the modelled device: a CPU's, with asynchronous scheduling if that is set.

`plugin` offers it to vLLM when the environment asks for it. vLLM imports this module while it loads itself, so nothing
of vLLM beyond its platforms may be imported here.
"""

from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

from engines.stock.plugin import EXECUTOR

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class ModelledPlatform(CpuPlatform):
    """No GPU, no model: every engine on it runs on `ModelledExecutor`, or on one of ours that it names."""

    device_name = "modelled"

    @classmethod
    def check_and_update_config(cls, vllm_config: "VllmConfig") -> None:
        asynchronous = vllm_config.scheduler_config.async_scheduling
        given = vllm_config.parallel_config.distributed_executor_backend
        modelled = given if isinstance(given, str) and given.startswith("engines.stock.") else EXECUTOR
        # It turns asynchronous scheduling off, as a CPU does not gain by it.
        super().check_and_update_config(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asynchronous
        vllm_config.parallel_config.distributed_executor_backend = modelled
