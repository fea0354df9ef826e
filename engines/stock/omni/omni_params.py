"""What a server of vLLM-Omni over modelled GPUs is told, and the environment in which it runs."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engines.core.stage import ENTRY
from engines.deployments import Deployment
from engines.server import DeploymentName, ServerParams, resolve
from engines.stock.arguments import StockParams, policy_of
from workloads.errors import UserError

RUNTIME = "vllm-omni"
HOST = "127.0.0.1"
"""Where its server listens: on nothing else."""
OWN = "vllm_omni"
"""The engine whose schedule is vLLM-Omni's own: no class of ours is in it."""
MODELS = ("qwen3_omni_30b_a3b", "qwen3_omni_30b_a3b_fp8")
STAGES = (ENTRY, "talker", "vocoder")
"""Roles of our stages in the order of vLLM-Omni's thinker, talker and code2wav."""


class OmniParams(BaseModel):
    """One server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str = Field(OWN, description="whose policy schedules thinker and talker")
    engine_params: dict[str, Any] = Field({}, description="the engine's parameters")
    deployment: DeploymentName = Field("qwen3_omni_2gpu", description="whose step times the stages take")
    active_stream_window: int = Field(
        0,
        ge=0,
        description="vLLM-Omni's own: replies that the talker speaks at once, first come first; 0: all",
    )
    slower: float = Field(1.0, gt=0, description="factor on all step times")
    seed: int = Field(0, ge=0, description="of the lengths of replies of which the client says none")
    gpu: bool = Field(
        False,
        description="this machine's GPU runs all stages, with dummy weights and a thinker of fewer layers; else they "
        "are modelled",
    )

    @property
    def served(self) -> Deployment:
        """The deployment with its KV pools sized. Raises UserError in one sentence."""
        served = resolve(ServerParams.model_validate({"deployment": self.deployment}))
        if served.model.name not in MODELS or tuple(map(served.role, served.stages)) != STAGES:
            raise UserError(
                f"deployment {self.deployment!r}: runtime {RUNTIME} serves Qwen3-Omni's thinker, talker and vocoder; "
                "set deployment=qwen3_omni_2gpu."
            )
        for stage in served.stages.values():
            if stage.gpus != (stage.gpus[0],) or stage.split > 1:
                raise UserError(
                    f"deployment {self.deployment!r}: runtime {RUNTIME} models a stage on one GPU, and {stage.name} "
                    "has more; set deployment=qwen3_omni_2gpu."
                )
        return served

    @property
    def own_schedule(self) -> bool:
        """Whether vLLM-Omni's own schedulers run."""
        return self.engine == OWN and not self.engine_params

    def told(self, stage: str) -> StockParams:
        """What our parts at a stage are told."""
        shared = self.model_dump(exclude={"active_stream_window", "gpu"})
        return StockParams.model_validate({**shared, "stage": stage, "token_per_frame": True})

    def check(self) -> None:
        """Raises UserError for what no server could be started with."""
        served = self.served
        for stage in served.stages:
            if served.role(stage) != "vocoder":
                policy_of(self.engine, served.role(stage), self.engine_params)


def python() -> str:
    """The interpreter of an environment that has vLLM-Omni: this one's, or that of `make omni` in this checkout.
    Raises UserError where there is none."""
    if find_spec("vllm_omni") is not None:
        return sys.executable
    made = Path(__file__).parents[3] / ".venv-omni" / "bin" / "python"
    if not made.exists():
        raise UserError(f"runtime {RUNTIME}: vLLM-Omni is not installed; run `make omni` in the checkout.")
    return str(made)
