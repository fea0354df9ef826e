"""Requests that are no turns: metrics, a list of models, the health of a server, an offer of WebRTC.

All requests but turns are made here. No redirect is followed, since a header may carry a key; one deadline counts for
the whole answer, however slowly it comes; and a proxy is used if sessions use one.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from harness.live.endpoints.transport.limits import MOST_HEAD, size
from harness.live.endpoints.transport.route import DIRECT, Route

UNREAD = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""Errors about an answer that is none."""
_PIECE = 2**16


class Answer(NamedTuple):
    """The answer of a web server. `software`: its name for itself. `cut`: why the body is not whole; "" for a whole
    one."""

    status: int
    software: str
    body: bytes
    cut: str


def get(
    url: str,
    *,
    timeout_s: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
    verified: bool = True,
    route: Route = DIRECT,
    body: bytes | None = None,
) -> Answer:
    """Return the answer at an http(s):// address, with `most_bytes` of its body, to a GET, or to a POST of `body`. The
    name's look-up is not limited in time.

    `verified`: the certificate of an https host must hold. OSError, such as TimeoutError, without an answer; ValueError
    where it is no answer in HTTP, or its head is too long.
    """
    assert verified or not headers, "a header may carry a key"
    parts, until_s = urlsplit(url), time.monotonic() + timeout_s
    request = _request(url, headers or {}, body)
    answer = _Receiver(most_bytes)
    with _connected(route, parts.hostname or "", parts.port, parts.scheme == "https", verified, until_s) as peer:
        peer.sendall(request)
        try:
            while not answer.cut and not answer.whole:
                peer.settimeout(_left_s(until_s))
                answer.read(peer.recv(_PIECE))
        except OSError as error:
            if not answer.status:
                raise
            answer.cut = "timeout" if isinstance(error, TimeoutError) else "closed"
    return Answer(answer.status, answer.software, bytes(answer.body), answer.cut)


def _request(url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    parts, first = urlsplit(url), "GET" if body is None else "POST"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {"Host": parts.netloc.rpartition("@")[2], "Connection": "close", "Accept-Encoding": "identity"}
    fields |= {} if body is None else {"Content-Length": str(len(body))}
    lines = [f"{first} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**fields, **headers}.items())]
    if " " in path or not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError(f"{url!r} or a header has characters that a request cannot have")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def _connected(route: Route, host: str, port: int | None, tls: bool, verified: bool, until_s: float) -> socket.socket:
    peer = _reached(route, host, port or (443 if tls else 80), until_s)
    if not tls:
        return peer
    context = route.tls() if verified else ssl._create_unverified_context()
    try:
        return context.wrap_socket(peer, server_hostname=host)
    except BaseException:
        peer.close()
        raise


def _reached(route: Route, host: str, port: int, until_s: float) -> socket.socket:
    if not route.is_direct:
        return route.connected(host, port, _left_s(until_s))
    failed = OSError(f"no address of {host}")
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return route.connected(str(address[0]), port, _left_s(until_s))
        except OSError as error:
            failed = error
    raise failed


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def garbage(error: Exception) -> str:
    """Return the reason of a failure for one of the errors in `UNREAD`."""
    switches = isinstance(error, httptools.HttpParserUpgrade)
    return f"garbage: {'a switch to another protocol' if switches else error}"


class _Receiver:
    """Reads one answer. httptools calls the `on_` methods."""

    def __init__(self, most_bytes: int) -> None:
        self.status, self.software, self.body = 0, "", bytearray()
        self.cut, self.whole = "", False
        self._most, self._read = most_bytes, 0
        self._bounded = False
        self._parser = httptools.HttpResponseParser(self)

    def read(self, data: bytes) -> None:
        """Take the next bytes; none at the end of the connection."""
        if not data:
            if not self.status:
                raise ConnectionError("closed")
            self.whole, self.cut = not self._bounded, "closed" if self._bounded else ""
            return
        self._read += len(data)
        try:
            self._parser.feed_data(data)
        except UNREAD as error:
            raise ValueError(garbage(error)) from None
        if not self.status and self._read > MOST_HEAD:
            raise ValueError(f"a head above {size(MOST_HEAD)}")
        if len(self.body) > self._most or (not self.whole and self._read > self._most + MOST_HEAD):
            del self.body[self._most :]
            self.cut = f"an answer above {size(self._most)}"

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._bounded |= name in (b"content-length", b"transfer-encoding")
        if name == b"server" and not self.status:
            self.software = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if (code := self._parser.get_status_code()) >= 200:
            self.status = code

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = self.status > 0
