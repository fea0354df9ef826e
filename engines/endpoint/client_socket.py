"""One client's socket: HTTP request, WebSocket, and the protection of other clients from this one.

The protocol itself is the sans-I/O one of `websockets`, driven from an asyncio protocol without a task or a queue of
its own: a message costs 5 µs of the loop, a rejected client 50 µs [measured], and the engine never waits for a socket.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import cast

from websockets.exceptions import InvalidMessage
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from engines.endpoint.base_session import BaseSession
from engines.endpoint.entrance import Entrance, Socket
from engines.endpoint.http_socket import REQUEST_BYTES, HttpSocket
from engines.endpoint.protocol import OVERLOADED

SLICE_BYTES, TURN_S, REST_S = 2048, 0.002, 0.001
"""Bytes read at once, seconds of reading before other clients have a turn, and the seconds of that turn: [chosen] a
slice of the smallest messages takes 3 ms [measured], and a burst of speech is not slowed down."""

NO_CODE, GONE = 1005, 1006
"""Close codes of the protocol: a close frame without a code, and no close frame."""

_quiet = logging.getLogger("rehearsal.endpoint.websockets")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class _Protocol(ServerProtocol):
    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """OpenAI's clients offer `realtime` from browsers; others offer nothing."""
        return Subprotocol("realtime") if "realtime" in subprotocols else None

    def send_eof(self) -> None:
        """Answer bytes that are no request with an error, where `websockets` hangs up silently."""
        if isinstance(self.handshake_exc, InvalidMessage):
            cause: BaseException = self.handshake_exc
            while cause.__cause__ is not None:
                cause = cause.__cause__
            response = self.reject(HTTPStatus.BAD_REQUEST, f"This request cannot be taken: {cause}.\n")
            self.writes.append(response.serialize())
        super().send_eof()


class Allowance:
    """A rate limit: an amount per second in the long run, and `burst` at once."""

    __slots__ = ("_ahead_s", "_burst_s", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst_s = burst / rate
        self._ahead_s = 0.0

    def take(self, amount: float, now: float) -> bool:
        """Take `amount` at `now` s; False if that is too much."""
        self._ahead_s = max(self._ahead_s, now) + amount / self._rate
        return self._ahead_s - now <= self._burst_s


class ClientSocket(Socket):
    """Implements `Outbox`. Closing begins with `close` and ends at `lost`, `close_timeout_s` later at most."""

    def __init__(self, server: Entrance, host: str) -> None:
        super().__init__(server, host)
        self._ws = _Protocol(max_size=self._limits.message_bytes, logger=_quiet)
        self._session: BaseSession | None = None
        self._messages = Allowance(self._limits.messages_per_s, self._limits.burst_messages)
        self._bytes = Allowance(self._limits.bytes_per_s, self._limits.burst_bytes)
        self._unread = bytearray()
        self._request_bytes = 0
        self._eof = False
        self._parts: list[bytes] = []
        self._binary = False
        self._binary_frames = 0
        self._made_s = self._loop.time()
        self._received_s = self._used_s = self._made_s
        self._pinged_s: float | None = None

    @property
    def busy(self) -> bool:
        return self._session is not None and (self._session.busy or self.queued_bytes > 0)

    @property
    def idle(self) -> bool:
        return self._session is not None and not self.busy

    @property
    def served(self) -> bool:
        return self._session is not None

    @property
    def _connecting(self) -> bool:
        """Return True until its request has been answered."""
        return self._session is None and self._closed_s is None

    def send(self, event: bytes) -> None:
        if self._session is None or self._ws.state is not State.OPEN:
            return  # it has closed, and its earlier messages are still being answered
        self._used_s = self._loop.time()
        self._ws.send_text(event)
        self._flush()
        if self.queued_bytes > self._limits.queue_bytes:
            self.close(1008, "reads too slowly")

    def close(self, code: int, reason: str) -> None:
        if self._connecting:
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, reason, "closing")
        elif self._closed_s is None:
            self._ws.fail(code, reason)
            self._flush()
            self._end(code)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._server.connected(self)

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(memoryview(self._server.buffer)[:nbytes])
        if not self._request_bytes and self._connecting and data.startswith(b"P"):
            self._hand_over(data)
            return
        self._received_s, self._pinged_s = self._loop.time(), None
        if self._session is not None and not self._unread and len(data) <= SLICE_BYTES:
            self._read(data)
            return
        waiting = bool(self._unread)
        self._unread += data
        if self._connecting:
            self._request_bytes += nbytes
            if self._request_bytes > REQUEST_BYTES:
                why = f"A request has {REQUEST_BYTES} bytes at most"
                self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why, "request")
            elif not waiting:
                self._server.schedule(self._read_on, self.host)
        elif not waiting:
            self._read_on()

    def eof_received(self) -> bool:
        """Let the transport close itself once the messages sent before have been read and answered (False: at once)."""
        self._eof = True
        if not self._unread:
            self._read_eof()
        return bool(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        self._ws.parser.close()  # which refers to its owner: no garbage that has to be looked for
        self._end(GONE)
        self._server.disconnected(self)

    def check(self, now: float) -> None:
        limits = self._limits
        if self._closed_s is not None:
            if now - self._closed_s > limits.close_timeout_s:
                self._transport.abort()
        elif self._session is None:
            # A request that waits for its turn is late because of us.
            if now - self._made_s > limits.handshake_timeout_s and not self._unread:
                why = f"No request was complete after {limits.handshake_timeout_s:g} s"
                self._reject(HTTPStatus.REQUEST_TIMEOUT, why, "no request")
        elif now - self._used_s > limits.idle_timeout_s:
            self.close(1008, f"idle for {limits.idle_timeout_s:g} s")
        elif self._pinged_s is not None:
            if now - self._pinged_s > limits.ping_s:
                self.close(1011, "no answer to a ping")
        elif now - self._received_s > limits.ping_s:
            self._pinged_s = now
            self._ws.send_ping(b"")
            self._flush()

    def _hand_over(self, data: bytes) -> None:
        """Hand the connection over: POST and the other methods with bodies are no WebSocket's."""
        client = HttpSocket(self._server, self._transport, self.host)
        self._server.disconnected(self)
        self._server.connected(client)
        self._transport.set_protocol(client)
        client.receive(data)

    def _read_on(self) -> None:
        """Read the received bytes, for as long as it is this client's turn."""
        if self._transport.is_closing():
            return
        begun = monotonic()
        while self._unread and monotonic() - begun < TURN_S:
            size = SLICE_BYTES
            if self._connecting:  # line by line: bytes behind a request are not read before its answer
                size = self._unread.find(b"\n", 0, SLICE_BYTES) + 1 or SLICE_BYTES
            data = bytes(self._unread[:size])
            del self._unread[:size]
            self._read(data)
        if self._unread:
            self._transport.pause_reading()
            self._loop.call_later(REST_S, self._read_on)
        elif self._eof:
            self._read_eof()
            self._transport.close()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def _read_eof(self) -> None:
        """Note that no more bytes will come."""
        self._ws.receive_eof()
        if self._request_bytes and self._connecting:
            self._refuse("request")  # half a one, as the protocol has told its sender
        self._flush()

    def _read(self, data: bytes) -> None:
        ws = self._ws
        ws.receive_data(data)
        for event in ws.events_received():
            if isinstance(event, Request):
                self._begin(event)
            elif self._session is not None:
                assert isinstance(event, Frame)
                self._take(self._session, event)
        if self._session is not None and ws.parser_exc is not None:
            self._end(ws.close_sent.code if ws.close_sent else GONE)  # the protocol has closed it
        elif ws.handshake_exc is not None and self._closed_s is None:
            self._refuse("request")
        self._flush()

    def _begin(self, request: Request) -> None:
        """Begin a session for a complete request, or answer with the reason against it."""
        ws, server = self._ws, self._server
        try:
            response = server.respond(request)
        except Exception as error:  # a mistake of ours costs this client its answer, and nobody else
            self._loop.call_exception_handler({"message": "a request has failed", "exception": error})
            response = ws.reject(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error\n")
        plain = response is not None
        if response is None:
            response = ws.accept(request)
        if request.method == "HEAD":
            response.body = b""
        ws.send_response(response)
        if plain:
            self._closed_s = self._loop.time()
        elif response.status_code != 101:
            self._refuse("request")
        elif server.full:
            ws.fail(OVERLOADED, "try again later")
            self._refuse("full")
        else:
            self._flush()
            server.session_began()
            self._session = server.connect(self)
            self._guarded(self._session.begin)

    def _reject(self, status: HTTPStatus, why: str, reason: str) -> None:
        """Answer an incomplete request, and read no more from its client."""
        self._unread.clear()
        self._ws.send_response(self._ws.reject(status, f"{why}.\n"))
        self._refuse(reason)
        self._flush()

    def _refuse(self, reason: str) -> None:
        self._closed_s = self._loop.time()
        self._server.refused[reason] += 1

    def _take(self, session: BaseSession, frame: Frame) -> None:
        now, code = self._loop.time(), frame.opcode
        if code is Opcode.CLOSE:
            close = self._ws.close_rcvd
            self._end(close.code if close is not None else NO_CODE)
        elif not self._messages.take(1, now):
            self.close(1008, f"more than {self._limits.messages_per_s:g} messages a second")
        elif not self._bytes.take(len(frame.data), now):
            self.close(1008, f"more than {self._limits.ahead_s:g} s ahead of speech")
        elif code in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if code is not Opcode.CONT:
                self._parts.clear()
                self._binary = code is Opcode.BINARY
            self._parts.append(bytes(frame.data))
            if frame.fin:
                message = b"".join(self._parts)
                self._parts.clear()
                self._deliver(session, message, now)

    def _deliver(self, session: BaseSession, message: bytes, now: float) -> None:
        self._used_s = now
        try:
            payload = message if self._binary else message.decode()
        except UnicodeDecodeError:
            self.close(1007, "text is not UTF-8")
            return
        self._guarded(partial(session.receive, payload))
        if self._binary:
            self._binary_frames += 1
            if self._binary_frames > self._limits.binary_frames:
                self.close(1003, "messages are JSON text")

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # a mistake of ours ends this session and no other
            self._loop.call_exception_handler({"message": "a session has failed", "exception": error})
            self.close(1011, "internal error")

    def _end(self, code: int) -> None:
        """End the session now, and the socket as soon as the client has read the reason."""
        if self._closed_s is None:
            self._closed_s = self._loop.time()
        if self._session is not None:
            session, self._session = self._session, None
            self._server.session_ended(code)
            session.end()

    def _flush(self) -> None:
        if self._transport.is_closing():
            self._ws.data_to_send()
            return
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:  # and discard later bytes, or a reset would overtake the close
                with contextlib.suppress(OSError):  # the client's reset has come first
                    self._transport.write_eof()
