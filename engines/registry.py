"""The engines that can be measured, by name, without importing vLLM: their parameters and their policies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from engines.core.admission import Admission
from engines.core.kv_manager import KvManager
from engines.core.policy import Policy
from engines.systems import liveserve, metronome, recycling, vllm_omni, vllm_omni_wo, vllm_realtime


def _stock(stage: str, params: BaseModel) -> None:
    """vLLM's own order, or its own LRU."""


def _never(params: BaseModel) -> bool:
    return False


def _always(params: BaseModel) -> bool:
    return True


def _unbounded(params: BaseModel) -> tuple[None, int]:
    """A session's KV grows as long as it lasts."""
    return None, 0


def _kept(params: BaseModel) -> None:
    """A session keeps its request."""


@dataclass(frozen=True)
class EngineSpec:
    """A variant: `policy(stage, params)` gives one stage replica's policy, or None for stock vLLM order.

    `offloads(params)`: whether the thinker's KV goes to host memory. `kv_manager(stage, params)`: what manages it
    beyond LRU, where it does; None: LRU, and nothing comes back before it is asked for.

    `serves`: turns, each a request, or frames of interaction sessions, each session a request. Of the latter:
    `bound(params)`: the window of tokens that a session keeps, None for all, and how many of its first ones besides.
    `preempts_waiting`: sessions that wait may lose their KV to others. `recycles(params)`: when a session's request
    is replaced, where it is. `admission(params, frame_s)`: who is let in.
    """

    name: str
    summary: str
    Params: type[BaseModel]
    policy: Callable[[str, BaseModel], Policy | None] = _stock
    offloads: Callable[[BaseModel], bool] = _never
    kv_manager: Callable[[str, BaseModel], KvManager | None] = _stock
    serves: Literal["turns", "frames"] = "turns"
    bound: Callable[[BaseModel], tuple[int | None, int]] = _unbounded
    preempts_waiting: bool = False
    recycles: Callable[[BaseModel], recycling.Params | None] = _kept
    admission: Callable[[BaseModel, float], Admission | None] = metronome.admission


ENGINES = {
    spec.name: spec
    for spec in (
        EngineSpec("vllm_omni_wo", vllm_omni_wo.SUMMARY, vllm_omni_wo.Params),
        EngineSpec("vllm_omni", vllm_omni.SUMMARY, vllm_omni.Params, offloads=_always),
        EngineSpec(
            "liveserve",
            liveserve.SUMMARY,
            liveserve.Params,
            liveserve.policy,
            _always,
            liveserve.kv_manager,
        ),
        EngineSpec("vllm_realtime", vllm_realtime.SUMMARY, vllm_realtime.Params, serves="frames"),
        EngineSpec(
            "vllm_realtime_pr49439",
            vllm_realtime.PR49439_SUMMARY,
            vllm_realtime.Params,
            serves="frames",
            preempts_waiting=True,
        ),
        EngineSpec(
            "recycling", recycling.SUMMARY, recycling.Params, serves="frames", recycles=recycling.horizon
        ),
        EngineSpec("metronome", metronome.SUMMARY, metronome.Params, serves="frames", bound=metronome.bound),
    )
}

ENDPOINT = "endpoint"
"""The engine of device live: whatever stands behind its url. Nobody here builds it, so it is not among `ENGINES`."""
