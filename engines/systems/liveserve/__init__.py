"""LiveServe: serving that knows what the listener has heard. Urgency scheduler (paper section 4), KV manager (5)."""

from pydantic import BaseModel

from engines.core.kv_manager import KvManager
from engines.systems.liveserve.kv import LiveServeKv
from engines.systems.liveserve.params import Params
from engines.systems.liveserve.scheduler import UrgencyPolicy

__all__ = ["SUMMARY", "LiveServeKv", "Params", "UrgencyPolicy", "kv_manager", "policy"]

SUMMARY = (
    "LiveServe: urgency scheduler, next-use eviction and speech-triggered preload on vLLM-Omni's pipeline"
)


def kv_manager(stage: str, params: BaseModel) -> KvManager | None:
    """The thinker's KV manager, for next-use eviction and for preload; without either it stays with LRU."""
    assert isinstance(params, Params)
    if stage != "thinker" or (params.eviction == "off" and not params.preload):
        return None
    return LiveServeKv(params)


def policy(stage: str, params: BaseModel) -> UrgencyPolicy | None:
    """The thinker's and the talker's policy; the vocoder stays first come, first served."""
    assert isinstance(params, Params)
    if not params.scheduling or stage not in ("thinker", "talker"):
        return None
    return UrgencyPolicy(stage, params)
