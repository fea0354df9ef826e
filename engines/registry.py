"""The engines that can be measured, by name, without importing vLLM: their parameters and their policies."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from engines import liveserve, vllm_omni, vllm_omni_wo
from engines.core.kv_manager import KvManager
from engines.core.policy import Policy


@dataclass(frozen=True)
class EngineSpec:
    """A variant: ``policy(stage, params)`` gives one stage replica's policy, or None for stock vLLM order.

    ``offloads(params)``: whether the thinker's KV goes to host memory. ``kv_manager(stage, params)``: what manages it
    beyond LRU, where it does; None: LRU, and nothing comes back before it is asked for.
    """

    name: str
    summary: str
    Params: type[BaseModel]
    policy: Callable[[str, BaseModel], Policy | None]
    offloads: Callable[[BaseModel], bool]
    kv_manager: Callable[[str, BaseModel], KvManager | None]


def _stock(stage: str, params: BaseModel) -> None:
    """vLLM's own order, or its own LRU."""


ENGINES = {
    spec.name: spec
    for spec in (
        EngineSpec(
            "vllm_omni_wo", vllm_omni_wo.SUMMARY, vllm_omni_wo.Params, _stock, lambda params: False, _stock
        ),
        EngineSpec("vllm_omni", vllm_omni.SUMMARY, vllm_omni.Params, _stock, lambda params: True, _stock),
        EngineSpec(
            "liveserve",
            liveserve.SUMMARY,
            liveserve.Params,
            liveserve.policy,
            lambda params: True,
            liveserve.kv_manager,
        ),
    )
}

DEVICES = {
    "virtual": "modelled GPUs in virtual time: a roofline or a measured profile says how long each step takes",
    "cpu": "vLLM really executes thinker and talker on this machine's processor, on the wall clock; vocoder modelled",
    "cuda": "vLLM really executes thinker and talker on this machine's GPU, on the wall clock; vocoder modelled",
}
REAL_DEVICES = ("cpu", "cuda")
