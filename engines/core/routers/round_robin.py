"""Each request goes to the next replica, whoever asks."""

from collections.abc import Sequence
from typing import Any

from rehearsal.engines.core.routers.target import Target


class RoundRobin:
    """See `engines.core.router.Router`."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)
        self._next = 0
        self._last: dict[int, int] = {}

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        may = range(self._count) if among is None else among
        replica = min(may, key=lambda i: (i - self._next) % self._count)
        self._next = (replica + 1) % self._count
        self._last[session] = replica
        return replica

    def done(self, replica: int, tokens: int = 0) -> None: ...

    def home(self, session: int) -> int | None:
        return self._last.get(session)

    def forget(self, session: int) -> None:
        self._last.pop(session, None)
