"""The engines that can be measured, by name, without importing vLLM: their parameters and their policies."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from engines import liveserve, vllm_omni
from engines.core.policy import Policy


@dataclass(frozen=True)
class EngineSpec:
    """A variant: ``policy(stage, params)`` gives one stage replica's policy, or None for stock vLLM order."""

    name: str
    summary: str
    Params: type[BaseModel]
    policy: Callable[[str, BaseModel], Policy | None]


ENGINES = {
    spec.name: spec
    for spec in (
        EngineSpec("vllm_omni", vllm_omni.SUMMARY, vllm_omni.Params, vllm_omni.policy),
        EngineSpec("liveserve", liveserve.SUMMARY, liveserve.Params, liveserve.policy),
    )
}

DEVICES = {
    "virtual": "modelled GPUs in virtual time: a roofline or a measured profile says how long each step takes",
    "cpu": "vLLM really executes thinker and talker on this machine's processor, on the wall clock; vocoder modelled",
    "cuda": "vLLM really executes thinker and talker on this machine's GPU, on the wall clock; vocoder modelled",
}
REAL_DEVICES = ("cpu", "cuda")
