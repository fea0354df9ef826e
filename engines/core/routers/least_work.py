"""OmniProxy's decode side (OmniInfer equation 9): the longest first, each to the least work, below the cap."""

from collections.abc import Sequence
from typing import Any

from rehearsal.engines.core.proxy.decode import DecodeNodes, Key, Waits, workload
from rehearsal.engines.core.router import AssigningRouter
from rehearsal.engines.core.routers.target import Target


class LeastWork(AssigningRouter):
    """Who is routed at once, and not assigned, is not refused where all are
    full, and counts by its prompt."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self.nodes = DecodeNodes([replica.max_running for replica in replicas])

    @property
    def load(self) -> list[int]:
        return self.nodes.running

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        waits = Waits(session, self.work(len(prompt), None), among)
        assigned = self.nodes.assign([waits]) or self.nodes.assign([waits], over_cap=True)
        return assigned[0][1]

    def work(self, prompt: int, max_tokens: int | None) -> int:
        return workload(prompt, max_tokens)

    def assign(self, waiting: Sequence[Waits[Key]]) -> list[tuple[Waits[Key], int]]:
        return self.nodes.assign(waiting)

    def done(self, replica: int, tokens: int = 0) -> None:
        self.nodes.release(replica, tokens)
