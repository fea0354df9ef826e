"""One server behind the proxy, as far as the proxy knows it: by what it has sent there, and whether it answers."""

from collections.abc import Hashable, Sequence
from typing import Any

from engines.core.prefix_index import PrefixIndex, block_hashes

BLOCK_BYTES = 256
"""[chosen] of a prompt's text that are hashed together: some 64 tokens of English, a few blocks of vLLM's."""

MAX_RUNNING = 64
"""[chosen] requests at which a server counts as fully loaded where no limit is set."""

MAX_BYTES = 4 * 32_768
"""[chosen] bytes of prompts under way at which it does: 32,768 tokens of English."""


class Backend:
    """Implements `engines.core.router.Target` for prompts that are bytes: a proxy has no tokenizer.

    `alive`: answers. `in_flight`: requests and sessions that it has now.
    """

    block_size = BLOCK_BYTES

    def __init__(self, url: str, max_in_flight: int | None) -> None:
        self.url = url.rstrip("/")
        self.alive = True
        self.in_flight = 0
        self.max_running = max_in_flight or MAX_RUNNING
        self.max_tokens = MAX_BYTES
        self._limit = max_in_flight
        self._index = PrefixIndex()

    @property
    def free(self) -> bool:
        """Whether it may be given one more."""
        return self.alive and (self._limit is None or self.in_flight < self._limit)

    def died(self) -> None:
        """What it had cached is gone with it."""
        self.alive = False
        self._index.clear()

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        """Counts cached tokens as far as requests that were sent there tell."""
        return self.block_size * self._index.depth(self.block_hashes(prompt))

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[Hashable]:
        return block_hashes(prompt, self.block_size)

    def prefix_index(self) -> PrefixIndex:
        return self._index
