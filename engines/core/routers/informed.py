"""What rules that weigh prefix against load know of replicas.

What a cache holds is known from the replica's KV events, and expected of what was just sent there.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from engines.core.routers.least_load import LeastLoad
from engines.core.routers.target import Target


class Node(NamedTuple):
    """What is known of one replica for one request. `matched`: tokens of its prompt that are cached there; `tokens`,
    `running`: of requests under way there; `max_tokens`, `max_running`: the most that it is given."""

    matched: int
    tokens: int
    running: int
    max_tokens: int
    max_running: int


class Informed(LeastLoad):
    """The base of such rules. They are told of prefixes, and do not look into the caches.

    `indexes`: what each replica has, as far as is known.
    """

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._replicas = replicas
        self._hashes: Sequence[Hashable] = ()
        self.indexes = [replica.prefix_index() for replica in replicas]

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        replica = super().route(session, prompt, features, among)
        self.indexes[replica].expect(self._hashes)
        return replica

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        hashes, size = self._replicas[0].block_hashes(prompt, features), self._replicas[0].block_size
        return [index.depth(hashes) * size for index in self.indexes]

    def nodes(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> list[Node]:
        """What is known of these replicas for this prompt."""
        self._hashes = self._replicas[0].block_hashes(prompt, features)
        return [
            Node(
                self.indexes[i].depth(self._hashes) * self._replicas[i].block_size,
                self.tokens[i],
                self.load[i],
                self._replicas[i].max_tokens,
                self._replicas[i].max_running,
            )
            for i in among
        ]
