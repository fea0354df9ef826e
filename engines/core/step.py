"""A step of one stage replica, from the moment it is scheduled until it is finished."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engines.core.device import Row, SummedRows
from engines.core.policy import Plan


@dataclass(slots=True)
class SchedulerStep:
    """A scheduled step: its work and its plan.

    `scheduled`: vLLM's SchedulerOutput; None: vLLM was not asked. `rows`: one for each request of the step; `summed`:
    further rows as sums, the replica's live counts. `start_s`: when it was scheduled; `begin_s`: when its KV is there
    and it can begin to execute, s. `preempted`: ids. `passed_over`: a request that the plan let run did not.
    """

    plan: Plan
    scheduled: Any
    rows: Sequence[Row]
    summed: SummedRows
    start_s: float
    begin_s: float
    preempted: Collection[str]
    passed_over: bool
