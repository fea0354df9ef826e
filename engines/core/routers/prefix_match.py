"""A request goes where most of its prompt is in the prefix cache; of equals where fewest are under way."""

from collections.abc import Sequence
from typing import Any

from engines.core.replica import Replica
from engines.core.routers.least_load import LeastLoad


class PrefixMatch(LeastLoad):
    """See `engines.core.router.Router`. What counts is KV on the GPU; a host's memory is not looked at."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        super().__init__(replicas)
        self._schedulers = [replica.scheduler for replica in replicas]

    def route(self, session: int, prompt: list[int], features: Sequence[Any] = ()) -> int:
        cached = [scheduler.cached_prefix(prompt, features) for scheduler in self._schedulers]
        replica = min(range(len(cached)), key=lambda i: (-cached[i], self.load[i]))
        self.load[replica] += 1
        self._last[session] = replica
        return replica
