"""Earliest deadline first: an order of requests, and a system that has it by default."""

import math
from collections import Counter

from engines.composition import Composition, Scheduler
from engines.core.policy import Plan, RequestView, StageView
from engines.turns.library import SPEAKING


class EarliestDeadlineFirst:
    """A `engines.core.policy.Policy`: who has no deadline comes last; of equals who is ready longest."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView) -> Plan:
        """Nobody is held, so that what the urgent leave of a step's tokens and slots goes to the others."""
        return Plan(order=[request.id for request in sorted(view.requests, key=_urgency)])


def _urgency(request: RequestView) -> tuple[float, float]:
    return math.inf if request.due_s is None else request.due_s, request.ready_s


COMPONENTS = (
    Scheduler(
        "edf",
        "earliest deadline of the next token first, requests without one last",
        policy=lambda stage, params: EarliestDeadlineFirst(),
    ),
)
SYSTEMS = (Composition("edf", "vllm_omni_wo with the earliest deadline first", SPEAKING, {"scheduler": "edf"}),)
