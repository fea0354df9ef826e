"""OmniProxy's decode side (OmniInfer equation 9), a request at a time: to the least work, below the cap.

A request's work is its prompt; what a client states beyond that, `max_tokens`, the protocol of routers does not carry.
Where several wait at once, `engines.core.proxy.decode` assigns them longest first.
"""

from collections.abc import Sequence
from typing import Any

from engines.core.proxy.decode import DecodeNodes, Waits, workload
from engines.core.routers.target import Target


class LeastWork:
    """See `engines.core.router.Router`. Where all are full it is the one with the least work: nobody is refused."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self.nodes = DecodeNodes([replica.max_running for replica in replicas])
        self._last: dict[int, int] = {}

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
        waits = Waits(session, workload(len(prompt), None), among)
        assigned = self.nodes.assign([waits]) or self.nodes.assign([waits], over_cap=True)
        replica = assigned[0][1]
        self._last[session] = replica
        return replica

    def done(self, replica: int, tokens: int = 0) -> None:
        self.nodes.release(replica, workload(tokens, None))

    def home(self, session: int) -> int | None:
        return self._last.get(session)

    def forget(self, session: int) -> None:
        self._last.pop(session, None)
