"""LiveServe: serving that knows what the listener has heard. Urgency scheduler (paper section 4), KV manager (5)."""

from engines.composition import Composition, KvManagement, Scheduler
from engines.systems.liveserve.liveserve_params import KvParams, OrderParams
from engines.turns.library import SPEAKING
from workloads.deferred import Deferred

COMPONENTS = (
    Scheduler(
        "liveserve",
        "by urgency of playback, in the classes U0, U1 and U2 (section 4)",
        OrderParams,
        kinds=("turns", "frames"),
        refusal="it goes by what a listener has heard, and nobody listens here.",
        policy=Deferred("engines.systems.liveserve.scheduler:policy"),
    ),
    KvManagement(
        "liveserve",
        "host memory, next-use eviction and preload while the user speaks (section 5)",
        KvParams,
        kinds=("turns",),
        refusal="it manages KV between the turns of a session, and a call keeps its own until it ends.",
        manager=Deferred("engines.systems.liveserve.kv:manager"),
        attach=Deferred("engines.systems.liveserve.ahead:attach"),
        offloads=True,
    ),
)

SYSTEMS = (
    Composition(
        "liveserve",
        "LiveServe: urgency scheduler, next-use eviction and speech-triggered preload on vLLM-Omni's pipeline",
        SPEAKING,
        {"scheduler": "liveserve", "kv": "liveserve"},
        against=("vllm_omni", "vllm_omni_wo"),
    ),
)
