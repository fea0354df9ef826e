"""What vLLM itself brings to fill a seam."""

from rehearsal.engines.composition import AdmissionControl, KvManagement, Order

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
)
