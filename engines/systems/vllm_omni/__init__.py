"""vLLM-Omni with KV offload, the baseline: every stage first come, first served.

The thinker's KV is stored in host memory by vLLM's own offload connector, with LRU on both sides, and loaded when a
request asks for it. `vllm_omni_wo` has no offload: evicted history is computed again.
"""

from engines.composition import Composition
from engines.turns.library import SPEAKING

SYSTEMS = (
    Composition(
        "vllm_omni_wo",
        "vLLM-Omni's pipeline with stock vLLM scheduling (FCFS) and prefix cache (LRU), no KV offload",
        SPEAKING,
    ),
    Composition(
        "vllm_omni",
        "vLLM-Omni's pipeline with stock vLLM scheduling (FCFS) and vLLM's KV offload to host memory (LRU)",
        SPEAKING,
        {"kv": "host"},
    ),
)
