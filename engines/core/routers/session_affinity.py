"""A session stays with one replica, as its KV does: the number of the session decides."""

from collections.abc import Sequence
from typing import Any

from engines.core.router import BindingRouter
from engines.core.routers.target import Target


class SessionAffinity(BindingRouter):
    """Where every session is at home is known before it comes."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        replica = self.home(session)
        if among is None or replica in among:
            return replica
        return among[session // self._count % len(among)]  # while its own is away; spread over the others

    def home(self, session: int) -> int:
        return session % self._count
