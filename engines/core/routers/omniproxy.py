"""OmniProxy's prefill side (OmniInfer equation 8): where the prefix is, unless there is too much to do.

What a cache holds is known from the replica's KV events, and expected of what was just sent there. Requests are handed
over at once: where they are to be held back, `engines.core.proxy.prefill` asks this rule.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from rehearsal.engines.core.proxy.score import ALPHA, Node, best, best_of_code
from rehearsal.engines.core.routers.least_load import LeastLoad
from rehearsal.engines.core.routers.target import Target


class Informed(LeastLoad):
    """Rules that weigh prefix against load. They are told of prefixes, and do not look into the caches.

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


class OmniProxy(Informed):
    """Equation 8, with its α."""

    alpha = ALPHA

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        return among[best(self.nodes(prompt, features, among), len(prompt), self.alpha)]


class OmniProxyByLoad(OmniProxy):
    """The same without the prefix term, to see what that does."""

    alpha = 0.0


class OmniProxyOfCode(Informed):
    """The same as OmniInfer's published code decides it: by match, then by load, under caps."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._taken = -1

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        after = sum(i <= self._taken for i in among) - 1  # its place among these
        return among[best_of_code(self.nodes(prompt, features, among), len(prompt), after)]

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        self._taken = super().route(session, prompt, features, among)
        return self._taken
