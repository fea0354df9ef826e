"""The usual rules of routing, made with a stage's replicas or other `Target`s."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from engines.core.router import BindingRouter, ChoosingRouter, Router, Target


class SessionAffinity(BindingRouter):
    """Keeps a session at one replica, as its KV stays there. The session's number decides, so its home is known before
    it comes."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        replica = self.home(session)
        if among is None or replica in among:
            return replica
        return among[session // self._count % len(among)]  # while its own is away; spread over the others

    def home(self, session: int) -> int:
        return session % self._count


class RoundRobin(Router):
    """Sends each request to the next replica, whatever its session. It remembers only the last replica."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._count = len(replicas)
        self._next = 0

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        may = range(self._count) if among is None else among
        replica = min(may, key=lambda i: (i - self._next) % self._count)
        self._next = (replica + 1) % self._count
        return replica


class LeastLoad(ChoosingRouter):
    """Sends a request to the replica with the fewest requests under way; of equals to the first.

    `load`, `tokens`: requests under way, and the tokens of their prompts.

    A request counts from its routing to its end, including its way to the replica: otherwise all requests that come
    within one hop would take the same replica.
    """

    def __init__(self, replicas: Sequence[Target]) -> None:
        self.load = [0] * len(replicas)
        self.tokens = [0] * len(replicas)

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        replica = self.choose(prompt, features, range(len(self.load)) if among is None else among)
        self.load[replica] += 1
        self.tokens[replica] += len(prompt)
        self.took(replica)
        return replica

    def took(self, replica: int) -> None:
        """Note that the request goes to `replica`."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        """Return the replica that the request would go to; nothing is counted. Other rules override it."""
        return min(among, key=lambda i: self.load[i])

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        return [0] * len(self.load)

    def done(self, replica: int, tokens: int = 0) -> None:
        self.load[replica] -= 1
        self.tokens[replica] -= tokens


class PrefixMatch(LeastLoad):
    """Sends a request to the replica with most of its prompt in the prefix cache; of equals to the one with the fewest
    requests under way.

    KV on the GPU counts; the host's memory does not.
    """

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._replicas = replicas

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        cached = {i: self._replicas[i].cached_prefix(prompt, features) for i in among}
        return min(among, key=lambda i: (-cached[i], self.load[i]))

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        return [replica.cached_prefix(prompt, features) for replica in self._replicas]


class Node(NamedTuple):
    """The state of one replica for one request. `matched`: tokens of the request's prompt that are cached there.
    `tokens`, `running`: tokens and number of the requests under way there. `max_tokens`, `max_running`: the most that
    the replica is given."""

    matched: int
    tokens: int
    running: int
    max_tokens: int
    max_running: int


class Informed(LeastLoad):
    """The base of rules that weigh prefix against load. They do not look into the caches: a replica's KV events report
    its content, and the blocks of recent requests count as expected there.

    `indexes`: the known content of each replica.
    """

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._replicas = replicas
        self._hashes: Sequence[Hashable] = ()
        self.indexes = [replica.prefix_index() for replica in replicas]

    def took(self, replica: int) -> None:
        self.indexes[replica].expect(self._hashes)

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        hashes, size = self._replicas[0].block_hashes(prompt, features), self._replicas[0].block_size
        return [index.depth(hashes) * size for index in self.indexes]

    def nodes(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> list[Node]:
        """Return the state of each replica of `among` for this prompt."""
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


class Dynamo(Informed):
    """NVIDIA Dynamo's KV router at temperature 0: tokens to compute plus tokens under way.

    A prompt counts in full until its request is over; blocks that requests share count for each of them, where Dynamo
    counts them once.
    """

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        costs = [dynamo_cost(node, len(prompt)) for node in self.nodes(prompt, features, among)]
        return among[costs.index(min(costs))]


def dynamo_cost(node: Node, prompt: int, overlap_weight: float = 1.0) -> float:
    """Return the cost of NVIDIA Dynamo's KV router, in tokens (Dynamo counts blocks); the least is best: overlap weight
    (1.0 by default) · tokens to compute + tokens under way there with this request (docs.nvidia.com/dynamo, "KV
    Router": logit = kv_overlap_score_weight · potential_prefill_blocks + potential_active_blocks)."""
    return overlap_weight * (prompt - node.matched) + node.tokens + prompt
