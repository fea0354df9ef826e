"""A router as another package brings it: an entry point of the group `rehearsal.systems` names this module."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from engines.composition import Routing
from engines.core.router import Router, Target


class LoyalParams(BaseModel):
    moves_from: int = Field(4, ge=1, description="requests under way at which a session goes elsewhere")


class Loyal(Router):
    """A session stays where it is, until that replica has too much to do."""

    def __init__(self, replicas: Sequence[Target], params: Any) -> None:
        self.load = [0] * len(replicas)
        self.most = params.moves_from
        self.at: dict[int, int] = {}

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        may = range(len(self.load)) if among is None else among
        replica = self.at.get(session)
        if replica is None or replica not in may or self.load[replica] >= self.most:
            replica = self.at[session] = min(may, key=lambda i: self.load[i])
        self.load[replica] += 1
        return replica

    def done(self, replica: int, tokens: int = 0) -> None:
        self.load[replica] -= 1

    def forget(self, session: int) -> None:
        self.at.pop(session, None)


COMPONENTS = (Routing("loyal", "where the session was, below a load", LoyalParams, rule=Loyal),)
