"""Each request goes to the next replica, whoever asks."""

from collections.abc import Sequence
from typing import Any

from engines.core.replica import Replica


class RoundRobin:
    """See `engines.core.router.Router`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._count = len(replicas)
        self._next = 0
        self._last: dict[int, int] = {}

    def route(self, session: int, prompt: list[int], features: Sequence[Any] = ()) -> int:
        replica, self._next = self._next, (self._next + 1) % self._count
        self._last[session] = replica
        return replica

    def done(self, replica: int) -> None: ...

    def home(self, session: int) -> int | None:
        return self._last.get(session)

    def forget(self, session: int) -> None:
        self._last.pop(session, None)
