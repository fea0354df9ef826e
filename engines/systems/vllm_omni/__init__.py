"""vLLM-Omni with KV offload, the baseline: every stage first come, first served.

The thinker's KV is stored in host memory by vLLM's own offload connector, with LRU on both sides, and loaded when a
request asks for it.
"""

from pydantic import BaseModel, ConfigDict

SUMMARY = "vLLM-Omni's pipeline with stock vLLM scheduling (FCFS) and vLLM's KV offload to host memory (LRU)"


class Params(BaseModel):
    """No parameters: it is the baseline."""

    model_config = ConfigDict(extra="forbid", frozen=True)
