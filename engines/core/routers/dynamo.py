"""NVIDIA Dynamo's KV router at temperature 0: what has to be computed and what is under way, added up."""

from collections.abc import Sequence
from typing import Any

from engines.core.routers.informed import Informed, Node


class Dynamo(Informed):
    """A prompt counts in full until its request is over; blocks that requests share count for each of them, where
    Dynamo counts them once."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        costs = [dynamo_cost(node, len(prompt)) for node in self.nodes(prompt, features, among)]
        return among[costs.index(min(costs))]


def dynamo_cost(node: Node, prompt: int, overlap_weight: float = 1.0) -> float:
    """Returns the cost of NVIDIA Dynamo's KV router, in tokens, of which its blocks are multiples; the least is best:
    overlap weight (1.0 by default) · what has to be computed + what is under way there with this request
    (docs.nvidia.com/dynamo, "KV Router": logit = kv_overlap_score_weight · potential_prefill_blocks +
    potential_active_blocks).
    """
    return overlap_weight * (prompt - node.matched) + node.tokens + prompt
