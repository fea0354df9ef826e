"""Which replica of a stage takes a request: what a router is asked, by whom and when.

A library of systems makes one for each choice of routing (`engines.composition.Routing`), with the stage's replicas;
the live proxy makes one with servers. All that is asked comes from one event loop. The usual rules are in
`engines.core.routing_rules`; another package brings one as it brings an order.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from engines.core.prefix_index import PrefixIndex

Key = TypeVar("Key")


class Target(Protocol):
    """One replica as routing rules see it: `engines.core.replica.Replica`, or a server behind the live proxy.

    All replicas of a stage hash prompts alike, in blocks of as many tokens.
    """

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
        """Return an index of the replica's cache that is kept up to date from now on. Call it before the replica has
        served anything."""
        ...


class Router(Protocol):
    """Routes the requests of one stage; replicas go by their place among those that it was made with.

    A rule that inherits from this needs to say only how it routes. It is told of every request's end and of every
    session's, so that it can count what is under way and remember who is there.
    """

    def route(
        self,
        session: int,
        prompt: Sequence[int],
        features: Sequence[Any] = (),
        among: Sequence[int] | None = None,
    ) -> int:
        """The replica that takes a request of `session`, which goes there at once and counts there until `done`.

        Called by the library's pipeline or gateway when the request is ready to be sent, once for each; by the proxy
        again where a server is lost. `prompt`: token ids, or bytes at the proxy, and none where a call begins;
        `features`: the sounds in it. `among`: the replicas that may take it, ascending and at least one, and the answer
        is one of these; None: all may.
        """
        ...

    def done(self, replica: int, tokens: int = 0) -> None:
        """A request that was routed or assigned to `replica` is over there, whether it ended, was cut or was lost.

        Called exactly once for each. `tokens`: the length of the prompt that it was routed with, or the work that it
        was assigned with; 0 of calls.
        """

    def forget(self, session: int) -> None:
        """The session has closed and will not come again. Called once for each session that was routed, and for others
        too. The proxy, which is told of no session's end, calls it after each request."""


@runtime_checkable
class BindingRouter(Router, Protocol):
    """One that binds each session to a replica from the start, so that there KV can be loaded before a request comes.

    Of any other the home of a session is where its last request went.
    """

    def home(self, session: int) -> int:
        """Where the session's requests go: a replica, never None. Asked at any time between the session's beginning and
        `forget`; what it says holds until then, and `route` without `among` says the same."""
        ...


@runtime_checkable
class ChoosingRouter(Router, Protocol):
    """One that can say where a request would go, and send it elsewhere later: what holds requests back needs that."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        """Where of `among` it would go now; nothing is counted, and to ask twice gives the same."""
        ...

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        """Tokens at the beginning of the prompt that each replica need not compute, as far as the rule knows."""
        ...


@runtime_checkable
class SortingRouter(Router, Protocol):
    """One that says in which order those are looked at who wait in front of full replicas. The live proxy asks;
    under any other router who came first goes first there."""

    def by_priority(
        self, waiting: Iterable[Key], tokens: Callable[[Key], int], waited_s: Callable[[Key], float]
    ) -> list[Key]:
        """All of `waiting`, the first to be looked at first. `tokens`: of the prompt; `waited_s`: until now, s."""
        ...


class Waits(NamedTuple, Generic[Key]):
    """A request that waits for an `AssigningRouter`. `key`: whatever names it to who asks; `work`: what it counts with;
    `nodes`: the replicas that may take it, None: all."""

    key: Key
    work: int
    nodes: Collection[int] | None = None


@runtime_checkable
class AssigningRouter(Router, Protocol):
    """One that deals with all who wait for a decode replica at once, and lets those wait on who find no place."""

    def work(self, prompt: int, max_tokens: int | None) -> int:
        """Return the work that a request counts with: tokens of its prompt, and the most that it may produce."""
        ...

    def assign(self, waiting: Sequence[Waits[Key]]) -> list[tuple[Waits[Key], int]]:
        """Returns who goes to which replica now; they count there until `done` with their work.

        Called with all who wait when a request has come or one is over, once for all that happens at that instant."""
        ...
