"""Requests whose prompts are computed, until an `AssigningRouter` finds a decode replica for each.

All that come at one instant, as those of a prefill batch do, and all that still wait, are assigned together.
"""

import asyncio
from collections.abc import Callable

from engines.core.router import AssigningRouter, Waits
from engines.turns.reply import Reply


class DecodeQueue:
    """`router` says who goes where; `take_over(reply)` is called of who has a place, which `reply.routed` tells."""

    def __init__(self, router: AssigningRouter, take_over: Callable[[Reply], None]) -> None:
        self._router = router
        self._take_over = take_over
        self._waiting: dict[Reply, Waits[Reply]] = {}
        self._loop = asyncio.get_running_loop()
        self._poll_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: Reply, prompt: int, max_tokens: int) -> None:
        """Its first token is there. `prompt`: tokens; `max_tokens`: the most that its client has asked for."""
        self._waiting[reply] = Waits(reply, self._router.work(prompt, max_tokens))
        self.look()

    def discard(self, reply: Reply) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(reply, None)

    def look(self) -> None:
        """A place may have become free: assign when all that happens at this instant has happened."""
        if self._waiting and not self._poll_due:
            self._poll_due = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._poll_due = False
        for waits, replica in self._router.assign(list(self._waiting.values())):
            del self._waiting[waits.key]
            waits.key.routed["decode"] = replica, waits.work
            self._take_over(waits.key)
