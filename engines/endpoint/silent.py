"""Connections that have sent nothing yet: of each only its descriptor is watched, until its first byte comes.

So a silent connection takes 25 µs of the loop, and a client's socket 0.2 ms [measured]: a flood of connections delays a
new caller by half a second, not by ten.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import NamedTuple

MOST_SILENT = 2048
"""Silent connections at once; the oldest makes room for a further one: [chosen] twice the callers of a large live run,
who connect at once and speak at once."""

DROPPED_AT_ONCE = 64
"""Silent connections that are dropped at one look, 1 ms of the loop [chosen]."""


class _Silent(NamedTuple):
    connection: socket.socket
    host: str
    since_s: float


class SilentConnections:
    """The silent connections, in the order in which they came. `spoken(connection, host)`: called when the first byte
    of one has come. `dropped()`: called for each that is closed because it said nothing; it is sent `farewell`."""

    def __init__(
        self, spoken: Callable[[socket.socket, str], None], dropped: Callable[[], None], farewell: bytes
    ) -> None:
        self._spoken, self._dropped, self._farewell = spoken, dropped, farewell
        self._loop = asyncio.get_running_loop()
        self._silent: dict[int, _Silent] = {}

    def __len__(self) -> int:
        return len(self._silent)

    def add(self, connection: socket.socket, host: str) -> None:
        """Wait for the first byte of an accepted connection."""
        if len(self) >= MOST_SILENT:
            self.drop_oldest()
        descriptor = connection.fileno()
        self._silent[descriptor] = _Silent(connection, host, self._loop.time())
        self._loop.add_reader(descriptor, self._hear, descriptor)

    def drop_oldest(self) -> bool:
        """Close the connection that has been silent for longest; False if there is none."""
        if not self._silent:
            return False
        silent = self._take(next(iter(self._silent)))
        with contextlib.suppress(OSError):
            silent.connection.send(self._farewell)
        silent.connection.close()
        self._dropped()
        return True

    def drop_since(self, since_s: float) -> None:
        """Close connections that have been silent since then or longer; some of them, if there are many."""
        for _ in range(DROPPED_AT_ONCE):
            oldest = next(iter(self._silent.values()), None)
            if oldest is None or oldest.since_s > since_s:
                return
            self.drop_oldest()

    def close(self) -> None:
        for descriptor in list(self._silent):
            self._take(descriptor).connection.close()

    def _hear(self, descriptor: int) -> None:
        silent = self._take(descriptor)
        try:
            gone = not silent.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            gone = True
        if gone:
            silent.connection.close()
        else:
            self._spoken(silent.connection, silent.host)

    def _take(self, descriptor: int) -> _Silent:
        self._loop.remove_reader(descriptor)
        return self._silent.pop(descriptor)
