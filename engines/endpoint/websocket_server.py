"""The WebSocket server: accepts connections, and closes them at shutdown.

Bursts are taken in small batches, because the engines share this loop: connections are accepted a few at a time.
"""

import asyncio
import socket
from functools import partial
from http import HTTPStatus
from math import inf
from time import monotonic

from engines.endpoint.client_socket import ClientSocket
from engines.endpoint.entrance import EARLY_S, PAUSE_S, Entrance, plain_response
from engines.endpoint.protocol import GOING, GOING_AWAY
from engines.endpoint.silent import SilentConnections
from workloads.host_names import only_local

BACKLOG = 4096
"""Connections that the kernel keeps for us: [config] Linux allows no more (net.core.somaxconn)."""

ACCEPTED = 64
"""Connections accepted before the engines go on: [chosen] 1.6 ms [measured], a fifth of the loop's time."""

KERNEL_BYTES = 256 * 1024
"""Bytes that the kernel keeps for a client that has not taken them yet: [chosen] seconds of speech. By default it would
keep minutes."""

DRAIN_S = 0.02
"""Time between two looks for completed replies at shutdown: [chosen] a frame of speech."""

CHECK_S = 0.1
"""Time between two checks for silent clients: [chosen] short, so that few clients of a burst are dropped at once."""


class WebSocketServer(Entrance):
    """All connections: they begin here, and end here at shutdown."""

    _listener: socket.socket | None = None
    _accepted_at = -inf
    _checks: asyncio.TimerHandle | None = None

    def listen(self, listener: socket.socket) -> None:
        """Accept clients through a bound socket, which is this object's from now on."""
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._only_local = only_local(listener)
        self._listener = listener
        self._accepting: set[asyncio.Task[object]] = set()
        self._joining: set[socket.socket] = set()
        why = f"No request was complete after {self.limits.handshake_timeout_s:g} s.\n"
        farewell = plain_response(HTTPStatus.REQUEST_TIMEOUT, why.encode()).serialize()
        self._silent = SilentConnections(self._spoken, self._dropped, farewell)
        self._loop.add_reader(listener.fileno(), self._accept)
        self._checks = self._loop.call_later(CHECK_S, self._check)

    async def drain(self, within_s: float) -> int:
        """Begin no more sessions, and disconnect each client (1001) once no reply to it is under way. Waits until all
        have gone, at most `within_s`. Returns the number of remaining replies, which `close` then cuts."""
        self.draining = True
        end_s = monotonic() + within_s
        while True:
            for client in [client for client in self._sockets if client.idle]:
                client.close(GOING_AWAY, GOING)
            if not self.busy or monotonic() >= end_s:
                return self.busy
            await asyncio.sleep(DRAIN_S)

    async def close(self) -> None:
        """Accept no more clients, disconnect all (1001), and wait until they have gone."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            self._silent.close()
            for connection in self._joining:
                connection.close()
            self._joining.clear()
        for client in list(self._sockets):
            client.close(GOING_AWAY, GOING)
        while self._sockets:  # it ends: sockets that do not close are aborted by the checks
            await asyncio.sleep(0.01)
        if self._checks is not None:
            self._checks.cancel()

    def _accept(self) -> None:
        assert self._listener is not None
        listener = self._listener.fileno()
        for _ in range(ACCEPTED):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors are left
                if self._silent.drop_oldest():
                    continue
                break  # some may be when the others have had a turn
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
            self._silent.add(connection, str(address[0]))
        self._loop.remove_reader(listener)
        self._accepted_at = monotonic()
        self._loop.call_later(PAUSE_S, self._accept_on)

    def _accept_on(self) -> None:
        if self._listener is None:
            return
        early_s = self._accepted_at + PAUSE_S - monotonic()
        if early_s > 0:
            self._loop.call_later(early_s + EARLY_S, self._accept_on)
        else:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _spoken(self, connection: socket.socket, host: str) -> None:
        """Make a client's socket of a connection when it is its turn."""
        self._joining.add(connection)
        self.schedule(partial(self._join, connection, host), (host, "new"))

    def _join(self, connection: socket.socket, host: str) -> None:
        if connection not in self._joining:
            return  # closed in the meantime
        self._joining.discard(connection)
        joining = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: ClientSocket(self, host), connection), name="accept"
        )
        self._accepting.add(joining)
        joining.add_done_callback(self._accepted)

    def _accepted(self, joining: "asyncio.Task[object]") -> None:
        self._accepting.discard(joining)
        if not joining.cancelled():
            joining.exception()  # a client that hangs up before accept is no error

    def _dropped(self) -> None:
        self.refused["no request"] += 1

    def _check(self) -> None:
        now = self._loop.time()
        self._silent.drop_since(now - self.limits.handshake_timeout_s)
        for client in list(self._sockets):
            client.check(now)
        self._checks = self._loop.call_later(CHECK_S, self._check)
