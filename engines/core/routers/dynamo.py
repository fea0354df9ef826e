"""NVIDIA Dynamo's KV router at temperature 0: what has to be computed and what is under way, added up."""

from collections.abc import Sequence
from typing import Any

from rehearsal.engines.core.proxy.score import dynamo_cost
from rehearsal.engines.core.routers.omniproxy import Informed


class Dynamo(Informed):
    """A prompt counts in full until its request is over; blocks that requests share
    count for each of them, where Dynamo counts them once."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        costs = [dynamo_cost(node, len(prompt)) for node in self.nodes(prompt, features, among)]
        return among[costs.index(min(costs))]
