"""The reply of a server's event: the one that its ids name, else the next one by the protocol.

An id that nobody has seen begins a reply, as `response.created` does: audio may come before that, or without it. What
comes without ids is of the reply that has begun and not ended, so nothing of a cut reply is counted to the next one.
Where the server has announced a reply, the next one begins when it is announced too, and what comes without ids before
is of the one that has ended.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from harness.live.endpoints.dialects.dialect import Cut
from harness.live.endpoints.dialects.events import Audio
from harness.live.endpoints.loudness import Loudness
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation


class Reply:
    """A reply. `response`: its id, once known; `done`: the server has ended it; `cut`: it was to end before its end.

    `received_s`: seconds of its sound, whose stretches are kept as they are played: item and length (s) of each.
    """

    __slots__ = ("_sound", "cut", "done", "loudness", "received_s", "response")

    def __init__(self) -> None:
        self.response: str | None = None
        self.done = self.cut = False
        self.received_s = 0.0
        self.loudness = Loudness()
        self._sound: list[tuple[str | None, float]] = []

    def add(self, event: Audio) -> None:
        """Add sound. ValueError where it is looked at and is not base64; Violation where its items change too often."""
        item, seconds = event.item, event.seconds
        if not self.loudness.audible:
            self.loudness.add(event.bytes(), event.format)
        self.received_s += seconds
        if self._sound and self._sound[-1][0] == item:
            seconds += self._sound.pop()[1]
        if len(self._sound) == MOST_REPLIES:
            raise Violation(f"more than {MOST_REPLIES:,} changes of items in a reply")
        self._sound.append((item, seconds))

    def at(self, played_s: float, done: bool | None = None) -> Cut:
        """Return the position after this much playback: the item, and the time within it."""
        item, passed_s = None, 0.0
        into: dict[str | None, float] = {}
        for item, length_s in self._sound:
            if passed_s + length_s >= played_s:
                break
            passed_s += length_s
            into[item] = into.get(item, 0.0) + length_s
        place_s = into.get(item, 0.0) + played_s - passed_s
        return Cut(self.response, item, place_s, self.done if done is None else done)


R = TypeVar("R", bound=Reply)


class Replies(Generic[R]):
    """The replies of one session. `begin` makes the next one, or returns None where none was asked for.

    Violation where the session has too many replies or items.
    """

    def __init__(self, begin: Callable[[], R | None]) -> None:
        self._begin = begin
        self._current: R | None = None
        self._created = True
        """The server has said of the current one that it begins."""
        self._announces = False
        """The current one began with that."""
        self._by_response: dict[str, R | None] = {}
        self._by_item: dict[str, R | None] = {}

    def created(self, response: str | None) -> None:
        """Note that the server begins a reply."""
        current = self._current
        if response in self._by_response:
            self._created = self._created or current is self._by_response[response]
            return
        early = not self._created and current is not None and not current.done
        if early and current is not None and None in (response, current.response):
            self._created = True
            self._name(current, response)
            return
        self._next(response, created=True)

    def of(self, response: str | None, item: str | None = None, begins: bool = False) -> R | None:
        """Return the reply of an event; None: no reply that was asked for. `begins`: it may be a reply's first
        event."""
        current = self._current
        if response is not None and response in self._by_response:
            reply = self._by_response[response]
        elif response is None and item is not None and item in self._by_item:
            return self._by_item[item]
        elif current is not None and not current.done and (response is None or current.response is None):
            reply = current
            self._name(reply, response)
        elif begins and not (response is None and item is None and self._announces):
            reply = self._next(response, created=False)
            if reply is None and response is None:
                return current  # late
        else:
            return None if response is not None else current
        if item is not None:
            self._note(self._by_item, item, reply)
        return reply

    def _next(self, response: str | None, created: bool) -> R | None:
        reply = self._begin()
        if reply is not None:
            self._current, self._created, self._announces = reply, created, created
        if response is not None:
            self._note(self._by_response, response, reply)
            if reply is not None:
                reply.response = response
        return reply

    def _name(self, reply: R, response: str | None) -> None:
        if response is not None:
            reply.response = response
            self._note(self._by_response, response, reply)

    def _note(self, replies: dict[str, R | None], id: str, reply: R | None) -> None:
        replies[id] = reply
        if len(replies) > MOST_REPLIES:
            raise Violation(f"more than {MOST_REPLIES:,} replies or items in a session")
