"""What rules of routing ask about one replica: `engines.core.replica.Replica`, or a server behind the live proxy."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from engines.core.routers.prefixes import PrefixIndex


class Target(Protocol):
    """One replica. All of a stage hash prompts alike, in blocks of as many tokens."""

    @property
    def max_running(self) -> int:
        """Requests that it is given at once."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens of prompts that it is given at once."""
        ...

    @property
    def block_size(self) -> int: ...

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        """Tokens at the beginning of the prompt that are in the prefix cache now, by the cache itself."""
        ...

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[Hashable]:
        """Returns the hashes of the prompt's full blocks, as `prefix_index` knows them."""
        ...

    def prefix_index(self) -> PrefixIndex:
        """What it tells of its cache from now on; to be asked for before it has served anything."""
        ...
