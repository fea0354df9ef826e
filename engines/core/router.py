"""Which replica of a stage takes a request: the protocol; the rules are in `engines.core.routers`, a file each."""

from collections.abc import Sequence
from typing import Any, Protocol


class Router(Protocol):
    """Routes the requests of one stage. Replicas go by their place among those it was made with."""

    def route(self, session: int, prompt: list[int], features: Sequence[Any] = ()) -> int:
        """The replica for a request of `session` with this prompt; it counts there until `done`."""
        ...

    def done(self, replica: int) -> None:
        """A request that was routed to `replica` is over."""
        ...

    def home(self, session: int) -> int | None:
        """Where the session's next request will go, or its last one went: its KV is there. None: nobody can say."""
        ...

    def forget(self, session: int) -> None:
        """The session has closed."""
        ...
