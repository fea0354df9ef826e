"""Streaming POST requests over connections that are open before they are needed.

Every piece of an answer carries the time at which the socket was read; it is parsed after that was taken. The
transport is aiofastnet's, which writes at once: uvloop's own waits for the end of the loop's turn.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiofastnet
import httptools

from harness.live.endpoints.transport.content_encoding import Decoder, NotDecoded
from harness.live.endpoints.transport.get import UNREAD, garbage
from harness.live.endpoints.transport.limits import MOST_HEAD, size
from harness.live.endpoints.transport.route import DIRECT, Route

CONNECT_AT_ONCE = 64  # below what servers let wait for accept(), often 128 [chosen]
REPEAT_S = 0.1
"""s. A kept connection that is lost so soon was closed while the request was on its way, which is sent again, once.
Later the server has worked on it: then it has failed, as a second one would be load that is not in the plan. [chosen]
"""


class StreamReceiver(Protocol):
    """The owner of a request. After `done` or `failed` nothing follows. Times on the loop's clock."""

    def status(self, code: int, at_s: float) -> None: ...

    def data(self, chunk: bytes, at_s: float) -> None:
        """Take a piece of the body, cut anywhere. `at_s`: when the socket was read (s), before any parsing."""
        ...

    def done(self, at_s: float) -> None: ...

    def failed(self, reason: str, at_s: float) -> None: ...


class Exchange:
    """A running request."""

    def __init__(self, request: bytes, receiver: StreamReceiver) -> None:
        self.request = request
        self.receiver = receiver
        self.sent_s: float | None = None
        """Time of the send (s); None as long as it waits for a connection."""
        self.repeated_s: float | None = None
        """Time at which it was sent again, on another connection, s."""
        self.over = False
        self.headers: dict[str, str] = {}
        """Headers of the answer, by names in lower case."""
        self.decoder: Decoder | None = None
        """The decoder of a compressed body."""
        self._connection: _Connection | None = None

    @property
    def cut(self) -> str:
        """Reason why the body that has ended is not whole; empty: it is."""
        return "" if self.decoder is None else self.decoder.cut

    def abort(self) -> None:
        """Abort: the connection closes, which tells the server. The receiver gets nothing more."""
        if not self.over:
            self.over = True
            if self._connection is not None:
                self._connection.drop()


class HttpPool:
    """Connections to one URL; each carries one request at a time.

    Raises:
        ValueError: for a URL that is not http(s), or a header that does not fit on a line.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, route: Route = DIRECT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http:// or https:// URL")
        for name, value in (headers or {}).items():
            if not (name + value).isprintable():
                raise ValueError(f"header {name!r} has characters that no header can have")
        self._address = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._route, self._tls = route, route.tls() if parts.scheme == "https" else None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {path} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
        if not any(name.lower() == "accept-encoding" for name in headers or {}):
            lines.append("Accept-Encoding: identity")  # nobody may collect the stream in order to compress it
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._head = "\r\n".join([*lines, "Content-Type: application/json", "Content-Length: "]).encode()
        self._loop = asyncio.get_running_loop()
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> int:
        """Number of connections that wait for a request."""
        return len(self._idle)

    async def open(self, n: int) -> None:
        """Open connections until `n` are idle. OSError when the server cannot be reached."""
        while (missing := n - len(self._idle)) > 0:
            self._idle += await asyncio.gather(*(self._connect() for _ in range(min(missing, CONNECT_AT_ONCE))))

    def post(self, body: bytes, receiver: StreamReceiver) -> Exchange:
        """Send a request with this JSON `body`: at once, or when a new connection is open if none is idle."""
        exchange = Exchange(b"%s%d\r\n\r\n%s" % (self._head, len(body), body), receiver)
        if self._idle:
            self._idle.pop().send(exchange, was_idle=True)  # the one used last: servers close those idle longest
        else:
            self._send_on_new(exchange)
        return exchange

    async def aclose(self) -> None:
        """Close every connection. Running requests fail."""
        for task in self._connecting:
            task.cancel()
        for connection in list(self._open):
            connection.drop()
        await asyncio.sleep(0)

    async def _connect(self) -> "_Connection":
        make: Any = aiofastnet.create_connection
        host, port = self._address
        if self._route.is_direct:
            where: dict[str, Any] = {"host": host, "port": port}
        else:
            peer = await self._route.opened(host, port)
            where = {"sock": peer, "server_hostname": host if self._tls else None}
        _, connection = await make(self._loop, lambda: _Connection(self), **where, ssl=self._tls)
        self._open.add(connection)
        return connection

    def _send_on_new(self, exchange: Exchange) -> None:
        task = self._loop.create_task(self._connect_and_send(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        try:
            connection = await self._connect()
        except OSError as error:
            if not exchange.over:
                exchange.over = True
                exchange.receiver.failed(f"connect: {error.strerror or error}", self._loop.time())
            return
        if exchange.over:
            self._idle.append(connection)
        else:
            connection.send(exchange, was_idle=False)


class _Connection(asyncio.Protocol):
    """A connection; httptools calls the `on_` methods."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._now = pool._loop.time
        self._exchange: Exchange | None = None
        self._was_idle = False
        self._parser = httptools.HttpResponseParser(self)
        self._answered = self._bounded = False
        self._framing = 0
        """Bytes of the answer besides its body, less as many as its body has."""
        self._at_s = 0.0

    def send(self, exchange: Exchange, was_idle: bool) -> None:
        self._exchange, exchange._connection, self._was_idle = exchange, self, was_idle
        self._answered = self._bounded = False
        self._framing = 0
        self._transport.write(exchange.request)
        if exchange.sent_s is None:
            exchange.sent_s = self._now()
        else:
            exchange.repeated_s = self._now()

    def drop(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._at_s = self._now()
        if self._exchange is None:
            self.drop()  # nobody asked for anything
            return
        self._was_idle = False  # as far as this request goes: the server has it
        framing = self._framing
        self._framing = len(data) if framing < 0 else framing + len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # the receiver's own
        except UNREAD as error:
            self._fail(garbage(error))
            self.drop()
        if self._framing > MOST_HEAD:
            self._fail(f"headers or framing above {size(MOST_HEAD)}")
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        pool, exchange = self._pool, self._exchange
        pool._open.discard(self)
        if self in pool._idle:
            pool._idle.remove(self)
        if exchange is None or exchange.over:
            return
        self._at_s = self._now()
        if self._was_idle and exchange.sent_s is not None and self._at_s - exchange.sent_s < REPEAT_S:
            exchange._connection = self._exchange = None
            pool._send_on_new(exchange)
        elif self._answered and not self._bounded and exc is None:
            self._finish(exchange)
        else:
            self._fail("closed")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._bounded = True
        if self._exchange is not None:
            headers, key = self._exchange.headers, name.decode("latin-1")
            before = f"{headers[key]}, " if key == "content-encoding" and key in headers else ""
            headers[key] = before + value.decode("latin-1")

    def on_headers_complete(self) -> None:
        exchange, code = self._exchange, self._parser.get_status_code()
        if code >= 200 and exchange is not None and not exchange.over:
            self._answered = True
            exchange.receiver.status(code, self._at_s)
            encoding = exchange.headers.get("content-encoding")
            if encoding is not None and not exchange.over:
                try:
                    exchange.decoder = Decoder(encoding)
                except NotDecoded as error:
                    self._fail(str(error))
                    self.drop()

    def on_body(self, body: bytes) -> None:
        self._framing -= 2 * len(body)
        exchange = self._exchange
        if exchange is None or exchange.over:
            return
        if exchange.decoder is None:
            exchange.receiver.data(body, self._at_s)
        else:
            try:
                for piece in exchange.decoder.feed(body):
                    exchange.receiver.data(piece, self._at_s)
                    if exchange.over:
                        return
            except NotDecoded as error:
                self._fail(str(error))
                self.drop()

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if not self._answered or exchange is None or exchange.over:
            return
        self._exchange = None
        if self._parser.should_keep_alive():
            self._pool._idle.append(self)
        else:
            self._transport.close()
        self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        exchange.over = True
        exchange.receiver.done(self._at_s)

    def _fail(self, reason: str) -> None:
        exchange = self._exchange
        if exchange is not None and not exchange.over:
            exchange.over = True
            exchange.receiver.failed(reason, self._at_s)
