"""The servers behind the proxy: who waits for one, who has one, and which of them live."""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp

from engines.composition import Routing
from engines.core.lifecycle import Lifecycle, Phase
from engines.core.prefix_index import PrefixIndex, block_hashes
from engines.core.router import SortingRouter

BLOCK_BYTES = 256
"""[chosen] of a prompt's text that are hashed together: some 64 tokens of English, a few blocks of vLLM's."""

MAX_RUNNING = 64
"""[chosen] requests at which a server counts as fully loaded where no limit is set."""

MAX_BYTES = 4 * 32_768
"""[chosen] bytes of prompts under way at which it does: 32,768 tokens of English."""


class Backend:
    """A server as the proxy knows it: by the requests sent there, and whether it answers.

    Implements `engines.core.router.Target` for prompts that are bytes: a proxy has no tokenizer. `alive`: it answers.
    `in_flight`: its present requests and sessions.
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
        """True where it may get one more."""
        return self.alive and (self._limit is None or self.in_flight < self._limit)

    def died(self) -> None:
        """Mark the backend as dead. Its cache is gone with it."""
        self.alive = False
        self._index.clear()

    def cached_prefix(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> int:
        """Count cached tokens, as far as the requests sent there show."""
        return self.block_size * self._index.depth(self.block_hashes(prompt))

    def block_hashes(self, prompt: Sequence[int], features: Sequence[Any] = ()) -> Sequence[Hashable]:
        return block_hashes(prompt, self.block_size)

    def prefix_index(self) -> PrefixIndex:
        return self._index


class NobodyAnswers(Exception):
    """No live server remains that the request has not tried."""


@dataclass(eq=False)
class Call:
    """A request or session on its way. `tried`: places of servers that have lost or rejected it."""

    session: int
    prompt: bytes
    life: Lifecycle
    tried: set[int] = field(default_factory=set)
    given: "asyncio.Future[int] | None" = None


class Pool:
    """The servers, and the calls that wait for one."""

    def __init__(self, backends: Sequence[Backend], rule: Routing) -> None:
        self.backends = backends
        self._router = rule.router(backends)
        self._waiting: list[Call] = []
        self._loop = asyncio.get_running_loop()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """True where anything waits for a server or is with one."""
        return bool(self._waiting) or any(each.in_flight for each in self.backends)

    async def acquire(self, call: Call) -> int:
        """Return the place of the server that takes it; `release` it there. NobodyAnswers where there is none."""
        call.life.enter(Phase.PREFILL_WAITING, self._loop.time())
        call.given = self._loop.create_future()
        self._waiting.append(call)
        self._deal()
        try:
            return await call.given
        except asyncio.CancelledError:
            if call in self._waiting:
                self._waiting.remove(call)
            elif call.given.done() and not call.given.cancelled() and call.given.exception() is None:
                self.release(call, call.given.result())
            raise

    def release(self, call: Call, place: int) -> None:
        """Release a call that is over at that server."""
        self.backends[place].in_flight -= 1
        self._router.done(place, len(call.prompt))
        self._deal()

    def lost(self, place: int) -> None:
        """Note that the server does not answer."""
        self.backends[place].died()
        self._deal()

    def found(self, place: int) -> None:
        """Note that the server answers."""
        self.backends[place].alive = True
        self._deal()

    def _deal(self) -> None:
        """Give servers to waiting calls, in order, within the limits."""
        now = self._loop.time()
        waiting = list(self._waiting)
        if isinstance(self._router, SortingRouter):
            waiting = self._router.by_priority(
                waiting,
                lambda call: len(call.prompt),
                lambda call: now - call.life.begun_s[Phase.PREFILL_WAITING],
            )
        for call in waiting:
            assert call.given is not None
            living = [i for i, each in enumerate(self.backends) if each.alive and i not in call.tried]
            free = [i for i in living if self.backends[i].free]
            if living and not free:
                continue
            self._waiting.remove(call)
            if not living:
                call.given.set_exception(NobodyAnswers())
                continue
            place = self._router.route(call.session, call.prompt, among=free)
            self._router.forget(call.session)  # whether it comes again nobody knows, and the list would grow
            self.backends[place].in_flight += 1
            call.life.enter(Phase.PREFILL_SCHEDULED, now)
            call.given.set_result(place)


PROBE_S = 1.0
"""[chosen] between two looks at every server."""

LOOK = aiohttp.ClientTimeout(total=5.0)
"""[chosen] in which a server that lives answers; one that does not is slow, and left as it is."""


async def look(pool: Pool, client: aiohttp.ClientSession, place: int) -> None:
    """Check whether one server answers."""
    backend = pool.backends[place]
    try:
        async with client.get(f"{backend.url}/health", timeout=LOOK) as answer:
            alive = answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
    except aiohttp.ClientConnectorError:
        alive = False
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return  # whether it lives shows the next look
    if alive != backend.alive:
        (pool.found if alive else pool.lost)(place)


async def keep_looking(pool: Pool, client: aiohttp.ClientSession) -> None:
    """Check all servers, for ever."""
    while True:
        await asyncio.gather(*(look(pool, client, place) for place in range(len(pool.backends))))
        await asyncio.sleep(PROBE_S)
