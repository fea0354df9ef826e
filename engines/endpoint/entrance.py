"""A server's sockets share this: its limits and counts, the answers to plain requests, and the rejection of sessions.

Requests are answered a few at a time, while timers run in between, because the engines share this loop. The hosts that
they come from take turns, so a host with many requests holds up no other.
"""

import asyncio
import hmac
from collections import Counter, deque
from collections.abc import Callable, Hashable
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from engines.endpoint.base_session import BaseSession
from engines.endpoint.limits import Limits
from engines.endpoint.protocol import GOING, Outbox, encode, error_body
from workloads.host_names import is_own

REALTIME_PATH, METRICS_PATH, HEALTH_PATH = "/v1/realtime", "/metrics", "/health"
MODELS_PATH = "/v1/models"
PAGES = METRICS_PATH, HEALTH_PATH, MODELS_PATH
READING = "GET", "HEAD"
"""Methods that ask for pages."""
POST = "POST"
JSON = "application/json"

WORK_S, PAUSE_S = 0.0015, 0.008
"""Time for new clients and their requests before the engines go on, and for how long, s: [chosen] a burst costs a
fifth of the loop's time while it lasts, and one of 2,000 is answered in 5 s. The pause is real time: model time that is
behind would have none."""

EARLY_S = 0.0005
"""Added to the rest of a pause: [chosen] so that the next look comes after its end, and looks do not repeat for
ever."""

READ_BYTES = 65_536
"""Read of a socket at once: [chosen] a second of speech in base64."""

MOST_SOCKETS = 4096
"""Sockets beyond sessions, such as rejected clients that have yet to hang up; for further ones the oldest of these are
reset: [chosen]."""


class Answer(Protocol):
    """The answer to a request: an `http_reply.HttpReply`, or a replacement."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Posted(NamedTuple):
    """The handling of requests with bodies. `read(body)`: parses the request, which has a field `stream`; raises
    Refusal. `begin(client, asked)`: begins the answer through an `HttpSocket`, which counts as a session.
    `content_type`: of a streamed answer. `most_bytes`: of a body whose text fits the model's context. `only`: True if
    nothing else is served."""

    path: str
    content_type: str
    read: Callable[[bytes], Any]
    begin: Callable[[Any, Any], Answer]
    most_bytes: int
    only: bool = False


class Socket(asyncio.BufferedProtocol):
    """One client's connection. `host`: the address that it comes from. `busy`: a reply is under way, or has yet to be
    taken; `idle`: nothing is asked or under way; `served`: it has a session, or a whole request."""

    _transport: asyncio.Transport

    def __init__(self, server: "Entrance", host: str) -> None:
        self.host = host
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._closed_s: float | None = None

    @property
    def busy(self) -> bool:
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        raise NotImplementedError

    @property
    def served(self) -> bool:
        raise NotImplementedError

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not taken."""
        return self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """Close the connection; a reply under way is cut."""
        raise NotImplementedError

    def drop(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def check(self, now: float) -> None:
        """Close the connection if it has been silent or open for too long; called regularly."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the one buffer of all sockets: it is emptied before the next is read. A new one each time would
        fragment the heap."""
        return self._server.buffer


class Entrance:
    """The server as its sockets see it. `connect(outbox)`: makes a client's session. `token`: clients must show it;
    None: none. `render_metrics(server)`: text of `/metrics` and its content type. `posted`: answers requests with
    bodies; None: nothing does. `model`: the served model, as OpenAI's API has it.

    `buffer`: the buffer that sockets are read into. `draining`: no session begins any more. `sessions`: connected;
    `begun`: so far; `refused`: connections by reason; `closed`: sessions by close code, 1006 without one.
    """

    def __init__(
        self,
        connect: Callable[[Outbox], BaseSession],
        limits: Limits,
        token: str | None,
        render_metrics: Callable[[Self], tuple[bytes, str]],
        posted: Posted | None = None,
        model: dict[str, Any] | None = None,
    ) -> None:
        self.limits = limits
        self.posted = posted
        self.buffer = bytearray(READ_BYTES)
        self.draining = False
        self.sessions = 0
        self.begun = 0
        self.refused: Counter[str] = Counter()
        self.closed: Counter[int] = Counter()
        self.connect = connect
        self._token = token
        self._render_metrics = render_metrics
        self._models = [model] if model is not None else []
        self._sockets: dict[Socket, None] = {}
        self._only_local = False
        self._lines: dict[Hashable, deque[Callable[[], None]]] = {}
        self._worked_s, self._paused_s = 0.0, -inf
        self._working = self._pausing = False
        self._loop = asyncio.get_running_loop()

    @property
    def busy(self) -> int:
        """Return the number of clients with a reply under way."""
        return sum(client.busy for client in self._sockets)

    @property
    def full(self) -> bool:
        return self.sessions >= self.limits.max_sessions

    @property
    def sockets(self) -> int:
        return len(self._sockets)

    @property
    def queued_bytes(self) -> list[int]:
        """Return the bytes that each client has yet to take."""
        return [client.queued_bytes for client in self._sockets]

    def respond(self, request: Request) -> Response | None:
        """Return the answer to a plain request, or to a rejected one; None: a session may begin."""
        hosts = [host.lower() for host in request.headers.get_all("Host")]
        try:
            path = urlsplit(request.path).path
            origins = [urlsplit(origin).netloc.lower() for origin in request.headers.get_all("Origin")]
        except ValueError as error:
            return self._refuse("request", HTTPStatus.BAD_REQUEST, f"Path or Origin is no URL: {error}.")
        if len(hosts) != 1 and request.protocol == "HTTP/1.1":
            return self._refuse("request", HTTPStatus.BAD_REQUEST, f"{len(hosts)} Host headers, not one.")
        if path in PAGES and request.method not in READING:
            return self._refuse("method", HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can only be read.")
        if path == HEALTH_PATH:
            status = HTTPStatus.SERVICE_UNAVAILABLE if self.draining else HTTPStatus.OK
            return plain_response(status, b"draining\n" if self.draining else b"ok\n")
        if not self._authorized(request.headers):
            why = "Authorization: Bearer TOKEN is missing or wrong."
            return self._refuse("token", HTTPStatus.UNAUTHORIZED, why)
        if self._token is None and self._only_local and not all(map(is_own, hosts)):
            why = "Host is another site's name; call this server localhost, or give it a token."
            return self._refuse("host", HTTPStatus.FORBIDDEN, why)
        if path == METRICS_PATH:
            body, kind = self._render_metrics(self)
            return plain_response(HTTPStatus.OK, body, kind)
        if path == MODELS_PATH:
            return plain_response(HTTPStatus.OK, encode({"object": "list", "data": self._models}), JSON)
        posted = self.posted
        entrances = ([] if posted and posted.only else [REALTIME_PATH]) + ([posted.path] if posted else [])
        if path not in entrances:
            paths = f"{', '.join((*entrances, MODELS_PATH, METRICS_PATH))} and {HEALTH_PATH}"
            return self._refuse("path", HTTPStatus.NOT_FOUND, f"There is {paths}.")
        if (request.method == POST) != (path != REALTIME_PATH):
            allow = "GET" if path == REALTIME_PATH else POST
            why = f"{path} is asked with {allow}."
            return self._refuse("method", HTTPStatus.METHOD_NOT_ALLOWED, why, allow)
        # A page without an address, such as a file's, has the origin `null`.
        if self._token is None and any(not origin or [origin] != hosts for origin in origins):
            return self._refuse("origin", HTTPStatus.FORBIDDEN, "Pages of other sites need a token.")
        if self.draining:
            return self._refuse("closing", HTTPStatus.SERVICE_UNAVAILABLE, f"{GOING.capitalize()}.")
        return None

    def session_began(self) -> None:
        self.sessions += 1
        self.begun += 1

    def session_ended(self, code: int) -> None:
        """Count a session that is over."""
        self.sessions -= 1
        self.closed[code] += 1

    def connected(self, client: Socket) -> None:
        """Add a connection. If there are too many, the oldest without a request loses its place."""
        self._sockets[client] = None
        if len(self._sockets) > self.limits.max_sessions + MOST_SOCKETS:
            oldest = next(socket for socket in self._sockets if not socket.served)
            self.disconnected(oldest)  # it is not to be chosen again before it has gone
            oldest.drop()

    def disconnected(self, client: Socket) -> None:
        self._sockets.pop(client, None)

    def schedule(self, work: Callable[[], None], line: Hashable) -> None:
        """Do `work` now, or after earlier work of its line, such as all of one host's; lines take turns."""
        self._lines.setdefault(line, deque()).append(work)
        self._work()

    def _work(self) -> None:
        """Do the waiting work as long as the loop's share for it lasts; the rest follows after a pause."""
        if self._working:
            return  # it was scheduled by work, and follows
        self._working, begun = True, monotonic()
        try:
            while self._lines and self._worked_s < WORK_S:
                line = next(iter(self._lines))
                waiting = self._lines.pop(line)
                work = waiting.popleft()
                if waiting:
                    self._lines[line] = waiting
                work()
                begun, last = monotonic(), begun
                self._worked_s += begun - last
        finally:
            self._working = False
            if not self._pausing:
                self._pausing, self._paused_s = True, monotonic()
                self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        early_s = self._paused_s + PAUSE_S - monotonic()
        if early_s > 0:
            self._loop.call_later(early_s + EARLY_S, self._resume)
            return
        self._pausing, self._worked_s = False, 0.0
        if self._lines:
            self._work()

    def _authorized(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        scheme, _, shown = ", ".join(headers.get_all("Authorization")).partition(" ")
        matches = hmac.compare_digest(shown.strip(" ").encode(), self._token.encode())
        return matches and scheme.lower() == "bearer"

    def _refuse(self, reason: str, status: HTTPStatus, why: str, allow: str = ", ".join(READING)) -> Response:
        self.refused[reason] += 1
        return plain_response(status, error_body(status, why, reason), JSON, allow)


def plain_response(
    status: HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8", allow: str = ", ".join(READING)
) -> Response:
    headers = Headers({"Connection": "close", "Content-Length": str(len(content)), "Content-Type": kind})
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allow
    return Response(status.value, status.phrase, headers, content)
