"""vLLM-Omni without KV offload: every stage first come, first served; history that was evicted is computed again."""

from pydantic import BaseModel, ConfigDict

SUMMARY = "vLLM-Omni's pipeline with stock vLLM scheduling (FCFS) and prefix cache (LRU), no KV offload"


class Params(BaseModel):
    """No parameters: it is a baseline."""

    model_config = ConfigDict(extra="forbid", frozen=True)
