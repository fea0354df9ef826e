"""A request goes where most of its prompt is in the prefix cache; of equals where fewest are under way."""

from collections.abc import Sequence
from typing import Any

from engines.core.routers.least_load import LeastLoad
from engines.core.routers.target import Target


class PrefixMatch(LeastLoad):
    """What counts is KV on the GPU; a host's memory is not looked at."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._replicas = replicas

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        cached = {i: self._replicas[i].cached_prefix(prompt, features) for i in among}
        return min(among, key=lambda i: (-cached[i], self.load[i]))

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        return [replica.cached_prefix(prompt, features) for replica in self._replicas]
