"""A request goes where fewest are under way; of equals to the first.

Counted are requests that were routed and are not over, those included that are still on their way to the replica: else
all that come within one hop would take the same one.
"""

from collections.abc import Sequence
from typing import Any

from engines.core.router import ChoosingRouter
from engines.core.routers.target import Target


class LeastLoad(ChoosingRouter):
    """`load`, `tokens`: requests under way, and those of their prompts."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self.load = [0] * len(replicas)
        self.tokens = [0] * len(replicas)

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        replica = self.choose(prompt, features, range(len(self.load)) if among is None else among)
        self.load[replica] += 1
        self.tokens[replica] += len(prompt)
        return replica

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        """Where it would go; nothing is counted. What other rules change."""
        return min(among, key=lambda i: self.load[i])

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        return [0] * len(self.load)

    def done(self, replica: int, tokens: int = 0) -> None:
        self.load[replica] -= 1
        self.tokens[replica] -= tokens
