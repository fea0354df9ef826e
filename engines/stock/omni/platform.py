"""vLLM-Omni's platform for the modelled device: `engines.stock.platform`, with vLLM-Omni's further methods.

`engines.stock.plugin` offers it. It is a module of its own because vLLM imports `engines.stock.platform` while it loads
itself, and vLLM-Omni's interface imports more of vLLM than has been loaded by then.
"""

# pyright: reportMissingImports=false, reportGeneralTypeIssues=false
import torch
from vllm_omni.platforms.interface import OmniPlatform, OmniPlatformEnum

from engines.stock.platform import ModelledPlatform

WORKER = "engines.stock.omni.worker.ModelledWorker"
DEVICES = 8
"""[chosen] as many as any deployment has."""


class ModelledOmniPlatform(OmniPlatform, ModelledPlatform):
    """Stages of any kind run on the modelled executor. Methods: vllm_omni 0.30.0, platforms/interface.py 31-410."""

    _omni_enum = OmniPlatformEnum.OOT
    device_control_env_var = "REHEARSAL_MODELLED_DEVICES"

    @classmethod
    def get_omni_ar_worker_cls(cls) -> str:
        return WORKER

    @classmethod
    def get_omni_generation_worker_cls(cls) -> str:
        return WORKER

    @classmethod
    def get_default_stage_config_path(cls) -> str:
        return "vllm_omni/deploy"

    @classmethod
    def get_device_count(cls) -> int:
        return DEVICES

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 1 << 40  # pools are sized by the deployment

    @classmethod
    def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def supports_torch_inductor(cls) -> bool:
        return False

    @classmethod
    def synchronize(cls) -> None:
        """Do nothing: no device runs at the same time as the host."""
