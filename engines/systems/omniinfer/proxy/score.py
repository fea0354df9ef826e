"""Which prefill node a request goes to: a trade between what its cache has and how much it has to do (equation 8).

And in which order those that wait are looked at: short ones first, until others have waited.

Requests are handed over at once: where they are to be held back, `deferral` asks these rules.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from engines.core.router import Target
from engines.core.routing_rules import Informed, Node

SHORT, AGE = 0.8, 0.2
"""[code] weights of a short prompt and of a long wait."""

WAIT_S = 0.05
"""[code] what a wait is compared with. The code compares it with the longest one where that is longer, so that no wait
ever outweighs a length, and long prompts starve behind short ones: here it always can."""

Request = TypeVar("Request")


def by_priority(
    waiting: Iterable[Request], tokens: Callable[[Request], int], waited_s: Callable[[Request], float]
) -> list[Request]:
    """Sorted, the first to be looked at first; of equals who came first: descending 0.8 · (longest − own length) /
    longest + 0.2 · own wait / 50 ms. So the longest goes before whoever comes 200 ms after it."""
    requests = list(waiting)
    longest = max(map(tokens, requests), default=0)

    def priority(request: Request) -> float:
        short = (longest - tokens(request)) / longest if longest else 0.0
        return SHORT * short + AGE * waited_s(request) / WAIT_S

    return sorted(requests, key=lambda request: (-priority(request), -waited_s(request)))


ALPHA = 0.5
"""[chosen] α of equation 8; the paper states none."""


def load(node: Node) -> float:
    """L̂ of equation 8: running requests and tokens alike, 1 where both are at their most."""
    return 0.5 * node.tokens / node.max_tokens + 0.5 * node.running / node.max_running


def over(node: Node, prompt: int) -> bool:
    """Whether a prompt of so many tokens would be more than it is given. An idle node takes any."""
    return node.running >= node.max_running or (node.running > 0 and node.tokens + prompt > node.max_tokens)


def best(nodes: Sequence[Node], prompt: int, alpha: float = ALPHA) -> int:
    """Equation 8: the first of those with the largest α · matched / prompt − (1 − α) · load; by α = 0 load alone."""

    def score(node: Node) -> float:
        return alpha * node.matched / max(1, prompt) - (1 - alpha) * load(node)

    return max(range(len(nodes)), key=lambda i: score(nodes[i]))


def best_of_code(nodes: Sequence[Node], prompt: int, after: int) -> int:
    """Chooses as OmniInfer's code does: nodes over their caps are left out; then the longest match, the fewest
    tokens, the fewest requests; where nobody matches, the fewest tokens, beginning behind the node `after` that was
    taken last. Where all are over their caps the least loaded one takes it: overload is not refused.
    """
    free = [i for i, node in enumerate(nodes) if not over(node, prompt)]
    if not free:
        return min(range(len(nodes)), key=lambda i: load(nodes[i]))
    if any(nodes[i].matched for i in free):
        return min(free, key=lambda i: (-nodes[i].matched, nodes[i].tokens, nodes[i].running))
    return min(free, key=lambda i: (nodes[i].tokens, (i - after - 1) % len(nodes)))


class OmniProxy(Informed):
    """By equation 8, with its α."""

    alpha = ALPHA
    by_priority = staticmethod(by_priority)

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        return among[best(self.nodes(prompt, features, among), len(prompt), self.alpha)]


class OmniProxyByLoad(OmniProxy):
    """The same without the prefix term, to see what that does."""

    alpha = 0.0


class OmniProxyOfCode(Informed):
    """The same as OmniInfer's published code decides it: by match, then by load, under caps."""

    by_priority = staticmethod(by_priority)

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
