"""The settings of a server of vLLM-Omni over modelled GPUs, and the environment in which it runs."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engines.core.stage import ENTRY
from engines.deployments import Deployment
from engines.server import DeploymentName, ServerParams, resolve
from engines.stock.arguments import StockParams, policy_of
from workloads.bounds import MOST_SEED
from workloads.errors import UserError

RUNTIME = "vllm-omni"
HOST = "127.0.0.1"
"""The only address on which its server listens."""
OWN = "vllm_omni"
"""The engine with vLLM-Omni's own schedule, without any class of ours."""
OMNI, TTS = (ENTRY, "talker", "vocoder"), ("talker", "vocoder")
"""Roles of our stages in the order of vLLM-Omni's: thinker, talker and code2wav, or qwen3_tts and code2wav."""
PIPELINES = {"qwen3_omni_30b_a3b": OMNI, "qwen3_omni_30b_a3b_fp8": OMNI, "qwen3_tts_1_7b": TTS}
"""Models of ours that vLLM-Omni serves on modelled GPUs, and their stages."""


class OmniParams(BaseModel):
    """The settings of one server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str = Field(OWN, description="whose policy schedules thinker and talker")
    engine_params: dict[str, Any] = Field({}, description="the engine's parameters")
    deployment: DeploymentName = Field("qwen3_omni_2gpu", description="whose step times the stages take")
    active_stream_window: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="vLLM-Omni's own: replies that the talker speaks at once, first come first; 0: all",
    )
    slower: float = Field(1.0, gt=0, le=1e6, description="real seconds in a second of the modelled stages")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="seed for the lengths of replies to requests without a length")
    gpu: bool = Field(
        False,
        description="this machine's GPU runs all stages, with dummy weights and a thinker of fewer layers; else they "
        "are modelled",
    )

    @property
    def served(self) -> Deployment:
        """The deployment with its KV pools sized. Raises UserError in one sentence."""
        served = resolve(ServerParams.model_validate({"deployment": self.deployment}))
        if PIPELINES.get(served.model.name) != tuple(map(served.role, served.stages)):
            raise UserError(
                f"deployment {self.deployment!r}: runtime {RUNTIME} serves Qwen3-Omni's thinker, talker and "
                "vocoder, or Qwen3-TTS's talker and vocoder; set deployment=qwen3_omni_2gpu or qwen3_tts_2gpu."
            )
        if not served.async_chunk:
            raise UserError(
                f"deployment {self.deployment!r}: runtime {RUNTIME} sends text and frames in chunks, and this one "
                "sends them whole; set deployment=qwen3_omni_2gpu."
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
        """True if vLLM-Omni's own schedulers run."""
        return self.engine == OWN and not self.engine_params

    def stage_params(self, stage: str) -> StockParams:
        """Return the settings of our parts at a stage."""
        shared = self.model_dump(exclude={"active_stream_window", "gpu"})
        return StockParams.model_validate(shared | {"stage": stage, "token_per_frame": True})

    def check(self) -> None:
        """Raise UserError for settings with which no server could start."""
        served = self.served
        if self.gpu and served.speech_only:
            raise UserError(f"deployment {self.deployment!r}: only Qwen3-Omni runs on a GPU here; leave gpu out.")
        roles = [role for stage in served.stages if (role := served.role(stage)) != "vocoder"]
        policies = [policy_of(self.engine, role, self.engine_params) for role in roles]
        if served.speech_only and not self.own_schedule and policies == [None]:
            raise UserError(
                f"deployment {self.deployment!r}: its talker comes first, and there engine {self.engine} keeps vLLM's "
                f"own order; set engine={OWN} or liveserve."
            )


def python() -> str:
    """Return the interpreter of an environment that has vLLM-Omni: this one's, or that of `make omni` in this checkout.
    Raises UserError without one."""
    if find_spec("vllm_omni") is not None:
        return sys.executable
    made = Path(__file__).parents[3] / ".venv-omni" / "bin" / "python"
    if not made.exists():
        raise UserError(f"runtime {RUNTIME}: vLLM-Omni is not installed; run `make omni` in the checkout.")
    return str(made)
