"""One client's HTTP connection for requests with bodies: chat completions or texts to speak, one after the other.

The protocol of `websockets` takes no bodies, so `ClientSocket` hands a connection over at its first byte.
"""

import asyncio
import contextlib
from http import HTTPStatus

import httptools
from websockets.datastructures import Headers
from websockets.http11 import Request

from engines.endpoint.entrance import Answer, Entrance, Socket
from engines.endpoint.protocol import GOING, Refusal, error_body

REQUEST_BYTES = 16_384
"""Most bytes of a request with all its headers: [chosen] browsers send 2 KiB."""

COMPLETIONS_PATH, SPEECH_PATH = "/v1/chat/completions", "/v1/audio/speech"

_STREAM = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
_GONE, _DONE = 1006, 1000
"""Close codes, by which ends of sessions are counted."""


class HttpSocket(Socket):
    """Also the way of an answer to its client: events or pieces and their end, or the whole answer. httptools calls the
    `on_` methods."""

    def __init__(self, server: Entrance, transport: asyncio.Transport, host: str) -> None:
        super().__init__(server, host)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._headers, self._body = b"", Headers(), bytearray()
        self._head_bytes = self._bare_bytes = 0
        self._begun_s: float | None = None
        """The beginning of the request that is being received, s; None without one."""
        self._waits = self._parsed_head = self._eof = self._keeps = False
        """A whole request waits for its turn; a request's head has come; the client has sent its last bytes; it wants
        the connection to stay open."""
        self._reply: Answer | None = None
        self._streams = False
        """True if the reply under way is sent piece by piece."""
        self._used_s = self._loop.time()

    @property
    def busy(self) -> bool:
        return self._reply is not None or self.queued_bytes > 0

    @property
    def idle(self) -> bool:
        return not self.busy and self._begun_s is None and not self._waits

    @property
    def served(self) -> bool:
        return self.busy or self._waits

    def event(self, data: bytes) -> None:
        self.piece(b"data: %s\n\n" % data)

    def piece(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))
            if self.queued_bytes > self._limits.queue_bytes:
                self._transport.abort()

    def finish(self) -> None:
        self._transport.write(b"0\r\n\r\n")
        self._done()

    def reject(self, status: HTTPStatus, why: str) -> None:
        """Answer with an error; where the head of a stream has gone, send the error as its last event."""
        body = error_body(status, why, "rate_limit_exceeded")
        if self._streams:
            self.event(body)
            self.finish()
        else:
            self._say(status, body)
            self._done()

    def answer(self, body: bytes) -> None:
        self._say(HTTPStatus.OK, body)
        self._done()

    def close(self, code: int, reason: str) -> None:
        if self._begun_s is not None or self._waits or (self._reply is not None and not self._streams):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}.", "closing")
        self._over(code)
        self._leave()

    def check(self, now: float) -> None:
        limits = self._limits
        if self._closed_s is not None:
            if now - self._closed_s > limits.close_timeout_s:
                self._transport.abort()
        elif self._begun_s is not None and now - self._begun_s > limits.handshake_timeout_s:
            why = f"No request was complete after {limits.handshake_timeout_s:g} s."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, why, "no request")
        elif self.idle and now - self._used_s > limits.idle_timeout_s:
            self._leave()

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(bytes(memoryview(self._server.buffer)[:nbytes]))

    def receive(self, data: bytes) -> None:
        """Take the client's next bytes."""
        if self._closed_s is not None:
            return
        self._head_bytes += len(data)
        body_bytes = len(self._body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.BAD_REQUEST, "A request with a body upgrades to nothing.", "request")
        except httptools.HttpParserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"This request cannot be taken: {error}.", "request")
        if self._begun_s is not None and not self._parsed_head:
            self._check_head(self._head_bytes)
        # Parts that are neither head nor body, such as trailers, would grow without limit.
        self._bare_bytes = self._bare_bytes + len(data) if len(self._body) == body_bytes else 0
        if self._begun_s is not None and self._parsed_head:
            self._check_head(self._bare_bytes)
        self._check_body(len(self._body))

    def eof_received(self) -> bool:
        """Take the client's last bytes. A client that hangs up after a whole request does not want the reply; one that
        sent half a request gets an error."""
        if self._begun_s is not None:
            self._refuse(HTTPStatus.BAD_REQUEST, "The request ends before its body does.", "request")
        if self._reply is not None:
            self._over(_GONE)
        self._eof = True
        return self._waits  # the transport closes itself (False) when everything has been written

    def connection_lost(self, exc: Exception | None) -> None:
        self._over(_GONE)
        self._server.disconnected(self)

    def on_message_begin(self) -> None:
        if self._waits or self._reply is not None:
            self._transport.abort()  # the next request comes after the answer
        self._path, self._headers, self._body = b"", Headers(), bytearray()
        self._parsed_head, self._bare_bytes = False, 0
        self._begun_s = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._parsed_head:  # of trailers we need none
            self._headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Check the head: a rejected client need not send the body."""
        self._parsed_head = True
        head_bytes = len(self._path) + sum(len(name) + len(value) for name, value in self._headers.raw_items())
        self._check_head(head_bytes)
        if self._closed_s is not None:
            return
        method, version = self._parser.get_method().decode(), self._parser.get_http_version()
        request = Request(self._path.decode("latin-1"), self._headers, method, f"HTTP/{version}")
        response = self._server.respond(request)
        if response is not None:
            self._say(HTTPStatus(response.status_code), bytes(response.body or b""), response.headers)
            self._leave()
            return
        stated = self._headers.get_all("Content-Length")
        if stated:
            self._check_body(int(stated[0]))  # before it is sent

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._check_body(len(self._body))
        self._keeps = self._parser.should_keep_alive()  # the parser forgets it
        if self._closed_s is not None or self._transport.is_closing():
            return
        self._begun_s, self._head_bytes, self._waits = None, 0, True
        self._server.schedule(self._answer, self.host)

    def _check_head(self, length: int) -> None:
        if length > REQUEST_BYTES:
            why = f"A request's head has {REQUEST_BYTES} bytes at most."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why, "request")

    def _check_body(self, length: int) -> None:
        posted, most = self._server.posted, self._limits.message_bytes
        if posted is not None:
            most = min(most, posted.most_bytes)
        if length > most:
            why = f"A request's body has {most} bytes at most."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, "request")

    def _answer(self) -> None:
        self._waits = False
        if self._transport.is_closing() or self._closed_s is not None:
            return
        server, body, self._body = self._server, bytes(self._body), bytearray()
        try:
            if server.draining:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{GOING.capitalize()}.", "closing")
            elif server.full:
                why = f"{self._limits.max_sessions} sessions are on line; try again later."
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, why, "full", leave=False)
            else:
                assert server.posted is not None
                request = server.posted.read(body)
                self._streams = request.stream
                if request.stream:
                    self._transport.write(_STREAM.format(server.posted.content_type).encode())
                self._reply = server.posted.begin(self, request)
                server.session_began()
                self._reply.begin()
        except Refusal as refusal:
            server.refused["request"] += 1
            status = HTTPStatus.BAD_REQUEST
            self._say(status, error_body(status, str(refusal), refusal.code, refusal.param))
            if not self._keeps:
                self._leave()
        except Exception as error:  # a mistake of ours costs this client its answer, and nobody else
            self._loop.call_exception_handler({"message": "a request has failed", "exception": error})
            self._over(1011)
            self._transport.abort()
        if self._eof:
            self._over(_GONE)
            self._leave()

    def _refuse(self, status: HTTPStatus, why: str, reason: str, leave: bool = True) -> None:
        """Reject a request, once; as a rule nothing more is read from its client."""
        if self._closed_s is not None:
            return
        self._begun_s = None
        self._server.refused[reason] += 1
        self._say(status, error_body(status, why, reason))
        if leave:
            self._leave()

    def _say(self, status: HTTPStatus, body: bytes, extra: Headers | None = None) -> None:
        headers = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: application/json"]
        headers += [f"Content-Length: {len(body)}"]
        if extra is not None:
            kept = (name for name in ("Allow", "WWW-Authenticate") if name in extra)
            headers += [f"{name}: {extra[name]}" for name in kept]
        self._transport.write("\r\n".join([*headers, "", ""]).encode() + body)
        self._used_s = self._loop.time()

    def _done(self) -> None:
        """Note that the whole reply has been sent."""
        self._over(_DONE)
        self._used_s = self._loop.time()
        if self._server.draining or not self._keeps:
            self._leave()

    def _over(self, code: int) -> None:
        """End the reply under way."""
        if self._reply is not None:
            reply, self._reply = self._reply, None
            self._server.session_ended(code)
            reply.end()

    def _leave(self) -> None:
        if self._closed_s is None:
            self._begun_s, self._closed_s = None, self._loop.time()
            if self._eof or self._transport.is_closing():
                self._transport.close()
            else:  # and discard later bytes, or a reset would overtake the answer
                with contextlib.suppress(OSError):
                    self._transport.write_eof()
