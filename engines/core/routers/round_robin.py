"""Each request goes to the next replica, whoever asks."""

from collections.abc import Sequence
from typing import Any

from engines.core.router import Router
from engines.core.routers.target import Target


class RoundRobin(Router):
    """The place of the last one is all that it remembers."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)
        self._next = 0

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
        return replica
