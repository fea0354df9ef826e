"""The protocols of routers, which choose the replica of a stage for each request.

A library of systems makes one for each choice of routing (`engines.composition.Routing`), with the stage's replicas.
All calls come from one event loop. The usual rules are in `engines.core.routing_rules`; another package can add a rule,
as it can add an order.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from engines.core.prefix_index import PrefixIndex

Key = TypeVar("Key")


class Target(Protocol):
    """One replica as routing rules see it, such as `engines.core.replica.Replica`.

    All replicas of a stage hash prompts alike, in blocks of the same size.
    """

    @property
    def max_running(self) -> int:
        """The most requests that it runs at once."""
        ...

    @property
    def max_tokens(self) -> int:
        """The most prompt tokens that it runs at once."""
        ...

    @property
    def block_size(self) -> int: ...

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        """Return the tokens at the beginning of the prompt that are in the prefix cache now, by the cache itself."""
        ...

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[Hashable]:
        """Return the hashes of the prompt's full blocks, as `prefix_index` knows them."""
        ...

    def prefix_index(self) -> PrefixIndex:
        """Return an index of the replica's cache that is kept up to date from now on. Call it before the replica has
        served anything."""
        ...


class Router(Protocol):
    """Routes the requests of one stage. It numbers replicas in the order in which it got them.

    A subclass needs to define only `route`. The caller reports every request's end and every session's, so that a rule
    can count requests under way and remember sessions.
    """

    def route(
        self, session: int, prompt: Sequence[int], features: Sequence[Any] = (), among: Sequence[int] | None = None
    ) -> int:
        """Return the replica that takes a request of `session`. The request goes there at once and counts there until
        `done`.

        The library's pipeline or gateway calls it once for each request, when it is ready to be sent. `prompt`: token
        ids, empty when a call begins; `features`: the sounds in it. `among`: the replicas that may take it, ascending
        and at least one, and the answer is one of them; None: all may.
        """
        ...

    def done(self, replica: int, tokens: int = 0) -> None:
        """End a request that was routed or assigned to `replica`, whether it finished, was cut or was lost.

        Called exactly once for each. `tokens`: the length of the prompt that it was routed with, or the work that it
        was assigned with; 0 for calls.
        """

    def forget(self, session: int) -> None:
        """Close a session, which will not return. Called once for each routed session, and for others too."""


def check_replica(router: Router, replica: int, replicas: int) -> int:
    """Return `replica`, which `router` has chosen; ValueError if it is not the number of one of the `replicas`."""
    if replica not in range(replicas):
        raise ValueError(
            f"{type(router).__name__}.route returned {replica!r}, but replicas are numbered from 0 to {replicas - 1}"
        )
    return replica


@runtime_checkable
class BindingRouter(Router, Protocol):
    """A router that binds each session to a replica from the start, so that KV can be loaded there before a request
    comes.

    With other routers, a session's home is the replica of its last request.
    """

    def home(self, session: int) -> int:
        """Return the replica of the session's requests, never None. It holds from the session's beginning until
        `forget`; `route` without `among` returns the same."""
        ...


@runtime_checkable
class ChoosingRouter(Router, Protocol):
    """A router that can name a request's replica now and send it elsewhere later; systems that hold requests back need
    one."""

    def choose(self, prompt: Sequence[int], features: Sequence[Any], among: Sequence[int]) -> int:
        """Return the replica of `among` that the request would go to now. Nothing is counted, so a second call returns
        the same."""
        ...

    def cached(self, prompt: Sequence[int], features: Sequence[Any]) -> Sequence[int]:
        """Return, for each replica, the tokens at the beginning of the prompt that it need not compute, as far as the
        rule knows."""
        ...


class Waits(NamedTuple, Generic[Key]):
    """A request that waits for an `AssigningRouter`. `key`: the caller's name for it; `work`: its work as
    `AssigningRouter.work` counts it; `nodes`: the replicas that may take it, None: all."""

    key: Key
    work: int
    nodes: Collection[int] | None = None


@runtime_checkable
class AssigningRouter(Router, Protocol):
    """A router that assigns all waiting requests to decode replicas at once; requests without a place wait on."""

    def work(self, prompt: int, max_tokens: int | None) -> int:
        """Return the work of a request: tokens of its prompt, and the most that it may produce."""
        ...

    def assign(self, waiting: Sequence[Waits[Key]]) -> list[tuple[Waits[Key], int]]:
        """Return the requests that go to a replica now; they count there until `done` with their work.

        Called with all waiting requests when a request has come or has ended, once for all changes at one instant.
        """
        ...
