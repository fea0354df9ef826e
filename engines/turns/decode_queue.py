"""Requests whose prompts are computed, until an `AssigningRouter` finds a decode replica for each.

All requests that come at one instant, such as a prefill batch, are assigned together with all waiting ones.
"""

import asyncio
from collections.abc import Callable

from engines.core.router import AssigningRouter, Waits
from engines.turns.reply import Reply


class DecodeQueue:
    """The queue. `router` assigns decode replicas; `take_over(reply)` is called for each reply with a place, which is
    in `reply.routed`."""

    def __init__(self, router: AssigningRouter, take_over: Callable[[Reply], None]) -> None:
        self._router = router
        self._take_over = take_over
        self._waiting: dict[Reply, Waits[Reply]] = {}
        self._loop = asyncio.get_running_loop()
        self._poll_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: Reply, prompt: int, max_tokens: int) -> None:
        """Add a reply with its first token. `prompt`: tokens; `max_tokens`: the most that its client has asked for."""
        self._waiting[reply] = Waits(reply, self._router.work(prompt, max_tokens))
        self.look()

    def discard(self, reply: Reply) -> None:
        """Drop a reply that nobody waits for any more."""
        self._waiting.pop(reply, None)

    def look(self) -> None:
        """Note that a place may have become free: assign after all other changes at this instant."""
        if self._waiting and not self._poll_due:
            self._poll_due = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._poll_due = False
        for waits, replica in self._router.assign(list(self._waiting.values())):
            del self._waiting[waits.key]
            waits.key.routed["decode"] = replica, waits.work
            self._take_over(waits.key)
