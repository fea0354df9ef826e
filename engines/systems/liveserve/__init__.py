"""LiveServe: serving that knows what the listener has heard. Urgency scheduler (paper section 4), KV manager (5)."""

from typing import Any

from engines.composition import Composition, KvManagement, Order
from engines.core.kv_manager import KvManager
from engines.speaking.library import SPEAKING
from engines.systems.liveserve.kv import LiveServeKv
from engines.systems.liveserve.params import KvParams, OrderParams, Params
from engines.systems.liveserve.scheduler import UrgencyPolicy

__all__ = ["COMPONENTS", "SYSTEMS", "LiveServeKv", "Params", "UrgencyPolicy"]


def _policy(stage: str, params: Any) -> UrgencyPolicy | None:
    """The thinker's and the talker's policy; the vocoder stays first come, first served."""
    return UrgencyPolicy(stage, params) if params.scheduling and stage in ("thinker", "talker") else None


def _manager(stage: str, params: Any) -> KvManager | None:
    """The thinker's KV manager, for next-use eviction and for preload; without either it stays with LRU."""
    if stage != "thinker" or (params.eviction == "off" and not params.preload):
        return None
    return LiveServeKv(params)


COMPONENTS = (
    Order(
        "liveserve",
        "by urgency of playback, in the classes U0, U1 and U2 (section 4)",
        OrderParams,
        kinds=("turns", "frames"),
        refusal="it goes by what a listener has heard, and nobody listens here.",
        policy=_policy,
    ),
    KvManagement(
        "liveserve",
        "host memory, next-use eviction and preload while the user speaks (section 5)",
        KvParams,
        kinds=("turns",),
        refusal="it manages KV between the turns of a session, and a call keeps its own until it ends.",
        manager=_manager,
        offloads=True,
    ),
)

SYSTEMS = (
    Composition(
        "liveserve",
        "LiveServe: urgency scheduler, next-use eviction and speech-triggered preload on vLLM-Omni's pipeline",
        SPEAKING,
        {"order": "liveserve", "kv": "liveserve"},
    ),
)
