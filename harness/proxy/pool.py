"""Who waits for a server, who has one, and which servers live."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.composition import Routing
from engines.core.lifecycle import Lifecycle, Phase
from engines.core.router import SortingRouter
from harness.proxy.backend import Backend


class NobodyAnswers(Exception):
    """No server that the request has not tried is alive."""


@dataclass(eq=False)
class Call:
    """One request or session on its way. `tried`: places of servers that have lost or refused it."""

    session: int
    prompt: bytes
    life: Lifecycle
    tried: set[int] = field(default_factory=set)
    given: "asyncio.Future[int] | None" = None


class Pool:
    """The servers, and the calls that wait until one may take them."""

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
        """Whether anything waits for a server or is with one."""
        return bool(self._waiting) or any(each.in_flight for each in self.backends)

    async def acquire(self, call: Call) -> int:
        """The place of the server that takes it; `release` it there. NobodyAnswers where there is none."""
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
        """It is over there, one way or another."""
        self.backends[place].in_flight -= 1
        self._router.done(place, len(call.prompt))
        self._deal()

    def lost(self, place: int) -> None:
        """The server does not answer."""
        self.backends[place].died()
        self._deal()

    def found(self, place: int) -> None:
        """It answers."""
        self.backends[place].alive = True
        self._deal()

    def _deal(self) -> None:
        """Give servers to those that wait, in order, as far as there is room."""
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
