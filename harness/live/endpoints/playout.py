"""The buffer of a telephone network between a server and the caller's ear, for protocols without an end of a reply."""

import asyncio
from collections import deque
from collections.abc import Callable

from harness.client.duplex_player import audible
from harness.live.endpoints.dialects.events import Audio, Done, Event, Mark
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation


class Playout:
    """Plays a connection's audio in order, and knows when it ends.

    A reply begins with its first audible packet. It is complete when all of it has been played and `quiet_s` seconds
    have passed without another audible packet: `ends` then gets the event. A mark is handed to `played` when the audio
    before it has been played or dropped, with the time at which that was due.
    """

    def __init__(
        self, quiet_s: float, ends: Callable[[Event, float], None], played: Callable[[Mark, float], None]
    ) -> None:
        self._quiet_s, self._ends, self._played = quiet_s, ends, played
        self._loop = asyncio.get_running_loop()
        self._end_s = 0.0
        """Time at which everything that has come is played."""
        self._quiet: asyncio.TimerHandle | None = None
        """Ends the reply; None: none is open."""
        self._marks: deque[tuple[Mark, asyncio.TimerHandle]] = deque()

    def takes(self, event: Event, at_s: float) -> bool:
        """Take an event of the server, which came at `at_s`. Return whether it is about a reply. Violation where its
        audio is none, or for too many marks."""
        if isinstance(event, Audio):
            return self._audio(event, at_s)
        if isinstance(event, Mark):
            if len(self._marks) == MOST_REPLIES:
                raise Violation(f"more than {MOST_REPLIES:,} marks that wait")
            due_s = max(at_s, self._end_s)
            self._marks.append((event, self._loop.call_at(due_s, self._echo)))
            return False
        if isinstance(event, Done):
            self._end_s = at_s
            self._stop()
            while self._marks:
                self._marks[0][1].cancel()
                self._played(self._marks.popleft()[0], at_s)
        return True

    def close(self) -> None:
        """Play no more."""
        self._stop()
        while self._marks:
            self._marks.popleft()[1].cancel()

    def _audio(self, event: Audio, at_s: float) -> bool:
        whole = event.size - event.size % event.format.frame
        try:
            sounds = audible(event.seconds, event.format.pcm(event.bytes()[:whole]))
        except ValueError:
            raise Violation("garbage") from None
        self._end_s = max(at_s, self._end_s) + event.seconds
        if sounds:
            self._stop()
            self._quiet = self._loop.call_at(self._end_s + self._quiet_s, self._end)
        return self._quiet is not None

    def _stop(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _end(self) -> None:
        self._quiet = None
        self._ends(Done(None, "completed"), self._loop.time())

    def _echo(self) -> None:
        mark, timer = self._marks.popleft()
        self._played(mark, timer.when())
