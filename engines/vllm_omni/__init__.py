"""vLLM-Omni as shipped: every stage first come, first served; no offload. The baseline."""

from pydantic import BaseModel, ConfigDict

SUMMARY = "vLLM-Omni's pipeline with stock vLLM scheduling at every stage (FCFS), no KV offload"


class Params(BaseModel):
    """No parameters: it is the baseline."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def policy(stage: str, params: BaseModel) -> None:
    """Stock order at every stage."""
