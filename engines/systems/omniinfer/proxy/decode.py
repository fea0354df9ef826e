"""The decode node of each request: the longest first, each to the node with the least work (LPT, equation 9)."""

from collections.abc import Sequence
from typing import Any

from engines.core.router import AssigningRouter, Key, Target, Waits

GAMMA = 1
"""[code] of equation 9."""


def workload(prompt: int, max_tokens: int | None, gamma: int = GAMMA) -> int:
    """Return w of equation 9: prompt tokens + γ · max_tokens; a request that states none counts by its prompt alone."""
    return prompt + gamma * (max_tokens or 0)


class DecodeNodes:
    """The requests under way at every decode node. `caps`: most requests of each node at once.

    `work`: sum of the requests' workloads, `running`: their number, by node.
    """

    def __init__(self, caps: Sequence[int]) -> None:
        self.caps = caps
        self.work = [0] * len(caps)
        self.running = [0] * len(caps)
        self._first = 0

    def assign(self, waiting: Sequence[Waits[Key]], over_cap: bool = False) -> list[tuple[Waits[Key], int]]:
        """Return the requests that go to a node now, the longest first. A request whose nodes are full waits on, or
        goes to a full one (`over_cap`). Of nodes with equal work it takes the first behind the last taken one."""
        assigned = []
        for request in sorted(waiting, key=lambda each: -each.work):
            among = range(len(self.caps)) if request.nodes is None else sorted(request.nodes)
            free = [i for i in among if over_cap or self.running[i] < self.caps[i]]
            if free:
                node = min(free, key=lambda i: (self.work[i], (i - self._first) % len(self.caps)))
                self._first = (node + 1) % len(self.caps)
                self.running[node] += 1
                self.work[node] += request.work
                assigned.append((request, node))
        return assigned

    def release(self, node: int, work: int) -> None:
        """Note that a request of this work has left the node."""
        self.running[node] -= 1
        self.work[node] -= work


class LeastWork(AssigningRouter):
    """Routes by least work. A request that is routed at once, and not assigned, is not rejected if all are full, and
    counts by its prompt."""

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
