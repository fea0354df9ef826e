"""A request goes where fewest are under way; of equals to the first.

Counted are requests that were routed and are not over, those included that are still on their way to the replica: else
all that come within one hop would take the same one.
"""

from collections.abc import Sequence
from typing import Any

from engines.core.replica import Replica


class LeastLoad:
    """See `engines.core.router.Router`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.load = [0] * len(replicas)
        self._last: dict[int, int] = {}

    def route(self, session: int, prompt: list[int], features: Sequence[Any] = ()) -> int:
        replica = self.load.index(min(self.load))
        self.load[replica] += 1
        self._last[session] = replica
        return replica

    def done(self, replica: int) -> None:
        self.load[replica] -= 1

    def home(self, session: int) -> int | None:
        return self._last.get(session)

    def forget(self, session: int) -> None:
        self._last.pop(session, None)
