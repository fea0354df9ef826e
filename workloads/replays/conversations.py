"""Find requests of a log that continue others, by the ids of their blocks of tokens.

Equal ids mean equal content up to there. A continuation begins with all full blocks of the request before it, is
longer than that and its reply, and comes later. An unrelated request with the same system prompt may look the same,
if the full blocks of the earlier request are only that prompt. Two signs distinguish them:

* strangers part: the holders of the last full block of a conversation are one line, each with room for the one before.
  Where they fork, the block is a shared prefix;
* a conversation has blocks of its own: some request holds its first block and not its last full one. Without such
  a request, a conversation and a system prompt with a few users look alike.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Rule = Literal["never", "strict", "likely"]
"""Rule for joining requests: never; only if both signs agree; or unless the first sign speaks against it."""

FORK = "all who hold those blocks cannot be one conversation"
ALIKE = "those blocks may be a prefix that strangers share (conversations=likely joins them)"


@dataclass(frozen=True)
class Log:
    """Requests, one value each: ids of blocks, the first `full` of them full; tokens of prompt and reply; s."""

    blocks: Sequence[Sequence[int]]
    full: Sequence[int]
    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    time_s: Sequence[float]

    def end(self, row: int) -> int | None:
        return self.blocks[row][self.full[row] - 1] if self.full[row] else None

    def has_room(self, row: int, later: int) -> bool:
        """Return whether `later` has room for prompt and reply of `row`."""
        held = self.input_tokens[row] + self.output_tokens[row]
        return self.input_tokens[later] > held and self.time_s[later] > self.time_s[row]

    @cached_property
    def order(self) -> list[int]:
        return np.argsort(np.asarray(self.time_s), kind="stable").tolist()

    @cached_property
    def holders(self) -> dict[int, list[int]]:
        """Block -> the requests that hold it, in the order of time."""
        found: dict[int, list[int]] = {}
        for row in self.order:
            for block in dict.fromkeys(self.blocks[row]):
                found.setdefault(block, []).append(row)
        return found

    def is_line(self, row: int) -> bool:
        """Return whether all holders of the last full block of `row` can be one conversation, judged by this block.

        First the requests that end in it, each with room for the one before; then the longer ones, all with the same
        next block.
        """
        end, depth = self.end(row), self.full[row]
        assert end is not None
        before, onward = None, None
        for holder in self.holders[end]:
            if before is not None and self.end(before) == end and not self.has_room(before, holder):
                return False
            goes_on = self.end(holder) != end
            following = self.blocks[holder][depth : depth + 1] if goes_on else None
            if onward is not None and following != onward:
                return False
            before, onward = holder, following
        return True

    def is_own(self, row: int) -> bool:
        """Return whether some request holds the first block of `row` and not its last full one."""
        end = self.end(row)
        assert end is not None
        return len(self.holders[self.blocks[row][0]]) > len(self.holders[end])


@dataclass(frozen=True)
class Conversations:
    """Number of the conversation of each request, int64 of shape (requests,), and what was found on the way.

    joined: requests that continue an earlier one; refused: requests that begin with all full blocks of one and
    do not, by reason. shared, kept: share of all blocks that came before at all, and in the same conversation.
    """

    conversation: np.ndarray
    joined: int
    refused: Counter[str]
    shared: float
    kept: float


def follow(log: Log, rule: Rule) -> Conversations:
    """Go through the requests in the order of time and join each to the latest that it continues."""
    conversation = np.arange(len(log.blocks))
    latest: dict[int, int] = {}  # last full block of a conversation so far -> its latest request
    seen: set[int] = set()
    refused: Counter[str] = Counter()
    joined = total = shared = kept = 0
    for row in log.order:
        ids, end = log.blocks[row], log.end(row)
        depth = next((i for i in range(len(ids), 0, -1) if ids[i - 1] in latest), 0)
        if depth and rule != "never":
            before = latest[ids[depth - 1]]
            if not log.is_line(before):
                refused[FORK] += 1
            elif rule == "strict" and not log.is_own(before):
                refused[ALIKE] += 1
            else:
                conversation[row] = conversation[before]
                del latest[ids[depth - 1]]
                joined, kept = joined + 1, kept + depth
        total += len(ids)
        shared += next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        if end is not None:
            latest[end] = row
    return Conversations(conversation, joined, refused, shared / max(total, 1), kept / max(total, 1))
