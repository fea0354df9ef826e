"""When KV goes to host memory and comes back."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HostCopies:
    """Extends a stage (`Stage.extension`) that has host memory; without it the defaults hold, which are vLLM's.

    `stores`: as blocks are computed, beside the steps; or only when a request is preempted, which the next step waits
    for (swapping). `loads`: beside the steps, or before the next one begins. `from_priority`: requests of this priority
    or a less urgent one are stored; None: all.
    """

    stores: Literal["computed", "preempted"] = "computed"
    loads: Literal["beside", "before"] = "beside"
    from_priority: int | None = None
