"""Nova's baseline Chunk: vLLM's own chunked prefill with a small budget.

An image is encoded within the step that begins its prompt, which all decodes of that step wait for."""

from collections import Counter

from engines.core.policy import Plan, RequestView, StageView
from engines.core.stage import ENTRY
from engines.systems.nova.params import ChunkParams


class Chunked:
    """Implements `engines.core.policy.Policy`."""

    def __init__(self, params: ChunkParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RequestView]) -> Plan:
        """vLLM's own order, in small steps."""
        return Plan(step_budget=self.params.chunk_tokens)


def policy(stage: str, params: ChunkParams) -> Chunked | None:
    """At the stage that requests come to first."""
    return Chunked(params) if stage == ENTRY else None
