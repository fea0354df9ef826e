"""The prefill node of each request: a trade between its cache and its load (equation 8).

And the order of waiting requests: short ones first, until others have waited. And the decode node of each request: the
longest first, each to the node with the least work (LPT, equation 9).

Requests are handed over at once; to hold them back, `deferral` asks these rules.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from engines.core.router import AssigningRouter, Key, Target, Waits
from engines.core.routing_rules import Informed, Node

SHORT, AGE = 0.8, 0.2
"""[code] weights of a short prompt and of a long wait."""

WAIT_S = 0.05
"""[code] scale of a wait. The code uses the longest wait if that is longer, so that no wait ever outweighs a length,
and long prompts starve behind short ones: with this constant it always can."""

Request = TypeVar("Request")


def by_priority(
    waiting: Iterable[Request], tokens: Callable[[Request], int], waited_s: Callable[[Request], float]
) -> list[Request]:
    """Sort by urgency, of equals by arrival: descending 0.8 · (longest − own length) / longest + 0.2 · own wait / 50
    ms. So the longest goes before any request that comes 200 ms after it."""
    requests = list(waiting)
    longest = max(map(tokens, requests), default=0)

    def priority(request: Request) -> float:
        short = (longest - tokens(request)) / longest if longest else 0.0
        return SHORT * short + AGE * waited_s(request) / WAIT_S

    return sorted(requests, key=lambda request: (-priority(request), -waited_s(request)))


ALPHA = 0.5
"""[chosen] α of equation 8; the paper states none."""


def load(node: Node) -> float:
    """Return L̂ of equation 8: running requests and tokens with equal weight, 1 if both are at their most."""
    return 0.5 * node.tokens / node.max_tokens + 0.5 * node.running / node.max_running


def over(node: Node, prompt: int) -> bool:
    """Return True if a prompt of `prompt` tokens would exceed the node's limit. An idle node takes any."""
    return node.running >= node.max_running or (node.running > 0 and node.tokens + prompt > node.max_tokens)


def best(nodes: Sequence[Node], prompt: int, alpha: float = ALPHA) -> int:
    """Return by equation 8 the first node with the largest α · matched / prompt − (1 − α) · load; with α = 0 by load
    alone."""

    def score(node: Node) -> float:
        return alpha * node.matched / max(1, prompt) - (1 - alpha) * load(node)

    return max(range(len(nodes)), key=lambda i: score(nodes[i]))


def best_of_code(nodes: Sequence[Node], prompt: int, after: int) -> int:
    """Choose as OmniInfer's code does (`omni_proxy_schedule_prefill`): of the nodes below their caps the longest match,
    the fewest tokens, the fewest requests; if none of these has a match, of all nodes the fewest tokens, beginning
    behind the node `after` that was taken last: overload is not rejected."""
    matched = [i for i, node in enumerate(nodes) if node.matched and not over(node, prompt)]
    if matched:
        return min(matched, key=lambda i: (-nodes[i].matched, nodes[i].tokens, nodes[i].running))
    return min(range(len(nodes)), key=lambda i: (nodes[i].tokens, (i - after - 1) % len(nodes)))


class OmniProxy(Informed):
    """Routes by equation 8, with its α."""

    alpha = ALPHA

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        return among[best(self.nodes(prompt, features, among), len(prompt), self.alpha)]


class OmniProxyByLoad(OmniProxy):
    """Routes by equation 8 without the prefix term, to show that term's effect."""

    alpha = 0.0


class OmniProxyOfCode(Informed):
    """Routes as OmniInfer's published code does: by match, then by load, under caps."""

    def __init__(self, replicas: Sequence[Target]) -> None:
        super().__init__(replicas)
        self._taken = -1

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        after = sum(i <= self._taken for i in among) - 1  # its place among these
        return among[best_of_code(self.nodes(prompt, features, among), len(prompt), after)]

    def took(self, replica: int) -> None:
        super().took(replica)
        self._taken = replica


GAMMA = 1
"""[code] of equation 9."""


class LeastWork(AssigningRouter):
    """Assigns requests to decode nodes by least work. A request that is routed at once, not assigned, is not rejected
    if all are full, and counts by its prompt.

    `load`, `under_way`: number of the requests under way, and the sum of their work, by node.
    """

    def __init__(self, replicas: Sequence[Target]) -> None:
        self._caps = [replica.max_running for replica in replicas]
        self.load = [0] * len(replicas)
        self.under_way = [0] * len(replicas)
        self._first = 0

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        waits = Waits(session, self.work(len(prompt), None), among)
        assigned = self.assign([waits]) or self.assign([waits], over_cap=True)
        return assigned[0][1]

    def work(self, prompt: int, max_tokens: int | None) -> int:
        """Return w of equation 9: prompt tokens + γ · max_tokens; a request that states none counts by its prompt
        alone."""
        return prompt + GAMMA * (max_tokens or 0)

    def assign(self, waiting: Sequence[Waits[Key]], over_cap: bool = False) -> list[tuple[Waits[Key], int]]:
        """Return the requests that go to a node now, the longest first. A request whose nodes are full waits on, or
        goes to a full one (`over_cap`). Of nodes with equal work it takes the first behind the last taken one."""
        assigned, nodes = [], range(len(self.load))
        for request in sorted(waiting, key=lambda each: -each.work):
            among = nodes if request.nodes is None else sorted(request.nodes)
            free = [i for i in among if over_cap or self.load[i] < self._caps[i]]
            if free:
                node = min(free, key=lambda i: (self.under_way[i], (i - self._first) % len(nodes)))
                self._first = (node + 1) % len(nodes)
                self.load[node] += 1
                self.under_way[node] += request.work
                assigned.append((request, node))
        return assigned

    def done(self, replica: int, tokens: int = 0) -> None:
        self.load[replica] -= 1
        self.under_way[replica] -= tokens
