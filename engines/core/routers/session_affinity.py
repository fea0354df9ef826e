"""A session stays with one replica, as its KV does: the number of the session decides."""

from collections.abc import Sequence
from typing import Any

from rehearsal.engines.core.routers.target import Target


class SessionAffinity:
    """See `engines.core.router.Router`."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        replica = session % self._count
        if among is None or replica in among:
            return replica
        return among[session // self._count % len(among)]  # while its own is away; spread over the others

    def done(self, replica: int, tokens: int = 0) -> None: ...

    def home(self, session: int) -> int | None:
        return session % self._count

    def forget(self, session: int) -> None: ...
