"""Queues between the stages: messages that are passed on, and requests that wait for a decode replica."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engines.core.router import AssigningRouter, Waits
from engines.turns.reply import Reply


class Orchestrator:
    """The one process that passes on all output, `service_s` each: one message of every source that has any, in turn.

    One step of a replica makes one message, for all its receivers, and each replica has its own queue (vLLM-Omni polls
    one `EngineCoreOutputs` of a replica per round, its issue 4561): text of a thinker that is ahead waits, and audio
    overtakes it.
    """

    def __init__(self, service_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._service_s = service_s
        self._waiting: dict[object, deque[_Message]] = {}
        self._passing = False
        self._polled: object = None
        self._polled_s = -math.inf

    def pass_on(self, source: object, deliver: Callable[..., None], *content: object) -> None:
        """Queue a message of `source`; `deliver(*content)` is called when it has been passed on."""
        if not self._service_s:
            deliver(*content)
            return
        self._message(source).parts.append((deliver, content))

    def poll(self, source: object) -> None:
        """Take a message of `source` without a receiver. It takes its time all the same. A timer is set only if
        something else comes before that time is over."""
        now = self._loop.time()
        if self._polled_s == now and self._polled is source:
            return
        if self._passing or now < self._polled_s + self._service_s:
            self._message(source)
        else:
            self._polled, self._polled_s = source, now

    def _message(self, source: object) -> "_Message":
        """Return the message of the step of `source` that ends now; a new one where it has none."""
        now = self._loop.time()
        if now < self._polled_s + self._service_s:
            self._begin(self._polled, self._polled_s)
            self._polled_s = -math.inf
        queue = self._waiting.get(source)
        if queue is not None and queue[-1].put_s == now:
            return queue[-1]
        if not self._passing:
            return self._begin(source, now)
        message = _Message(now, [])
        self._waiting.setdefault(source, deque()).append(message)
        return message

    def _begin(self, source: object, now: float) -> "_Message":
        """Pass a message on at once, as nothing else waits."""
        message = _Message(now, [])
        self._waiting[source], self._passing = deque([message]), True
        self._loop.call_at(now + self._service_s, self._passed, source)
        return message

    def _passed(self, source: object) -> None:
        queue = self._waiting.pop(source)
        message = queue.popleft()
        if queue:
            self._waiting[source] = queue  # behind the others that wait
        for deliver, content in message.parts:
            deliver(*content)
        self._passing = bool(self._waiting)
        if self._passing:
            self._loop.call_at(self._loop.time() + self._service_s, self._passed, next(iter(self._waiting)))


class _Message(NamedTuple):
    put_s: float
    parts: list[tuple[Callable[..., None], tuple[object, ...]]]


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
