"""What fills an extension point and is no system's: vLLM's own, and the usual rules of routing."""

from engines.composition import AdmissionControl, KvManagement, Order, Routing
from engines.core.routers.dynamo import Dynamo
from engines.core.routers.least_load import LeastLoad
from engines.core.routers.prefix_match import PrefixMatch
from engines.core.routers.round_robin import RoundRobin
from engines.core.routers.session_affinity import SessionAffinity

BY_PROMPT = {"kinds": ("turns",), "refusal": "it goes by the whole prompt, which only turns begin with."}

COMPONENTS = (
    Order("fcfs", "vLLM's own order: first come, first served"),
    Order(
        "priority",
        "vLLM's own order by priority, as the trace gives it; of equals first come, first served",
        vllm="priority",
    ),
    KvManagement("lru", "vLLM's prefix cache, least recently used out first"),
    KvManagement(
        "host",
        "vLLM's offload of KV to host memory, least recently used out first on both sides",
        offloads=True,
        kinds=("turns",),
        refusal="a call keeps its KV until it ends, so that nothing comes back.",
    ),
    AdmissionControl("off", "everybody is let in"),
    Routing(
        "session_affinity", "a session stays with one replica: its number says which", rule=SessionAffinity
    ),
    Routing("round_robin", "each request to the next replica", rule=RoundRobin),
    Routing("least_load", "where the fewest requests are under way", rule=LeastLoad),
    Routing("prefix_match", "where most of the prompt is in the cache", rule=PrefixMatch, **BY_PROMPT),
    Routing("dynamo", "NVIDIA Dynamo's KV router at temperature 0", rule=Dynamo, **BY_PROMPT),
)
