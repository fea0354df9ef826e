"""A session stays with one replica, as its KV does: the number of the session decides."""

from collections.abc import Sequence
from typing import Any

from engines.core.replica import Replica


class SessionAffinity:
    """See `engines.core.router.Router`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._count = len(replicas)

    def route(self, session: int, prompt: list[int], features: Sequence[Any] = ()) -> int:
        return session % self._count

    def done(self, replica: int) -> None: ...

    def home(self, session: int) -> int | None:
        return session % self._count

    def forget(self, session: int) -> None: ...
