"""Which replica of a stage takes a request: the protocol; the rules are in `engines.core.routers`, a file each."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from rehearsal.engines.core.proxy.decode import Key, Waits


class Router(Protocol):
    """Routes the requests of one stage. Replicas go by their place among those it was made with."""

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        """The replica for a request of `session` with this prompt; it counts there until `done`. `among`: those that
        may take it, at least one, ascending; None: all."""
        ...

    def done(self, replica: int, tokens: int = 0) -> None:
        """A request that was routed to `replica` is over; `tokens`: of the prompt that it was routed with, or the work
        that it was assigned with."""
        ...

    def home(self, session: int) -> int | None:
        """Where the session's next request will go, or its last one went: its KV is there. None: nobody can say."""
        ...

    def forget(self, session: int) -> None:
        """The session has closed."""
        ...


class ChoosingRouter(Router, Protocol):
    """One that can say where a request would go, and send it elsewhere later."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        """Where it would go now; nothing is counted."""
        ...

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        """Tokens at the beginning of the prompt that each replica need not compute, as far as the rule knows."""
        ...


@runtime_checkable
class AssigningRouter(Router, Protocol):
    """One that deals with all who wait at once, and lets those wait on who find no place."""

    def work(self, prompt: int, max_tokens: int | None) -> int:
        """What a request counts with: tokens of its prompt, and the most that it may produce."""
        ...

    def assign(self, waiting: Sequence[Waits[Key]]) -> list[tuple[Waits[Key], int]]:
        """Who goes to which replica now; they count there until `done` with their work."""
        ...
