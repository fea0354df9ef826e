"""Which prefill node a request goes to: a trade between what its cache has and how much it has to do."""

from collections.abc import Sequence
from typing import NamedTuple

ALPHA = 0.5
"""[chosen] α of equation 8; the paper states none."""


class Node(NamedTuple):
    """What is known of one node for one request. `matched`: tokens of its prompt that are cached there; `tokens`,
    `running`: of requests under way there; `max_tokens`, `max_running`: the most that it is given."""

    matched: int
    tokens: int
    running: int
    max_tokens: int
    max_running: int

    @property
    def load(self) -> float:
        """L̂ of equation 8: running requests and tokens alike, 1 where both are at their most."""
        return 0.5 * self.tokens / self.max_tokens + 0.5 * self.running / self.max_running

    def over(self, prompt: int) -> bool:
        """Whether a prompt of so many tokens would be more than it is given. An idle node takes any."""
        return self.running >= self.max_running or (
            self.running > 0 and self.tokens + prompt > self.max_tokens
        )


def best(nodes: Sequence[Node], prompt: int, alpha: float = ALPHA) -> int:
    """Equation 8: the first of those with the largest α · matched / prompt − (1 − α) · load; by α = 0 load alone."""

    def score(node: Node) -> float:
        return alpha * node.matched / max(1, prompt) - (1 - alpha) * node.load

    return max(range(len(nodes)), key=lambda i: score(nodes[i]))


def best_of_code(nodes: Sequence[Node], prompt: int, after: int) -> int:
    """As OmniInfer's code does it: nodes over their caps are left out; then the longest match, the fewest tokens, the
    fewest requests; where nobody matches, the fewest tokens, beginning behind the node `after` that was taken last.
    Where all are over their caps the least loaded one takes it: overload is not refused."""
    free = [i for i, node in enumerate(nodes) if not node.over(prompt)]
    if not free:
        return min(range(len(nodes)), key=lambda i: nodes[i].load)
    if any(nodes[i].matched for i in free):
        return min(free, key=lambda i: (-nodes[i].matched, nodes[i].tokens, nodes[i].running))
    return min(free, key=lambda i: (nodes[i].tokens, (i - after - 1) % len(nodes)))


def dynamo_cost(node: Node, prompt: int, overlap_weight: float = 1.0) -> float:
    """Of NVIDIA Dynamo's KV router, here in tokens, of which its blocks are multiples; the least is best: overlap
    weight (1.0 by default) · what has to be computed + what is under way there with this request
    (docs.nvidia.com/dynamo, "KV Router": logit = kv_overlap_score_weight · potential_prefill_blocks +
    potential_active_blocks).
    """
    return overlap_weight * (prompt - node.matched) + node.tokens + prompt
