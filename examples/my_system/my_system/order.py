"""Shortest question first: of all questions the one with the fewest passages left to score."""

from collections import Counter

from engines.core.policy import Plan, StageView
from my_system.gateway import RagView


class ShortestQuestion:
    """See `engines.core.policy.Policy`. Of equals the one that came first; its passages stay together."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RagView]) -> Plan:
        order = sorted(view.requests, key=lambda request: (request.left, request.ready_s))
        return Plan(order=[request.id for request in order])
